// Loses the GPU of a running server: loaded into it by LD_PRELOAD, it waits until the file named by
// LOSE_DEVICE_WHEN is there, and then runs a kernel that writes to nowhere in the process's own
// context.
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <thread>
#include <unistd.h>

namespace {

constexpr const char* kKernel = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry nowhere()
{
  .reg .u64 %at;
  .reg .u32 %one;
  mov.u64 %at, 16;
  mov.u32 %one, 1;
  st.global.u32 [%at], %one;
  ret;
}
)";

template <class... Args>
void call(void* driver, const char* name, Args... args) {
  using Function = int (*)(Args...);
  const auto function = reinterpret_cast<Function>(dlsym(driver, name));
  const int error = function != nullptr ? function(args...) : -1;
  std::fprintf(stderr, "lose_device: %s: %d\n", name, error);
}

void lose() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return;
  void *context = nullptr, *module = nullptr, *function = nullptr;
  call(driver, "cuDevicePrimaryCtxRetain", &context, 0);
  call(driver, "cuCtxSetCurrent", context);
  call(driver, "cuModuleLoadData", &module, static_cast<const void*>(kKernel));
  call(driver, "cuModuleGetFunction", &function, module, "nowhere");
  void** const none = nullptr;
  call(driver, "cuLaunchKernel", function, 1U, 1U, 1U, 1U, 1U, 1U, 0U, static_cast<void*>(nullptr),
       none, none);
  call(driver, "cuCtxSynchronize");
}

struct Loser {
  Loser() {
    const char* const when = std::getenv("LOSE_DEVICE_WHEN");
    if (when == nullptr) return;
    std::thread([file = std::string(when)] {
      while (access(file.c_str(), F_OK) != 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      lose();
    }).detach();
  }
};
const Loser kLoser;

}  // namespace
