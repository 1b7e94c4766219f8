// FunctionRef: something to call that lives elsewhere, as a parameter. Two pointers, nothing is
// allocated; what it refers to must outlive the call.
#pragma once

#include <memory>
#include <utility>

namespace skein {

template <class Signature>
class FunctionRef;

template <class Result, class... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <class Fn>
  FunctionRef(const Fn& fn)  // NOLINT: any callable is one
      : context_(std::addressof(fn)), call_([](const void* context, Args... args) -> Result {
          return (*static_cast<const Fn*>(context))(std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const { return call_(context_, std::forward<Args>(args)...); }

 private:
  const void* context_;
  Result (*call_)(const void* context, Args... args);
};

}  // namespace skein
