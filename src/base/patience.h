// Patience when memory runs short: `operator new` does not throw at once but tries again for a
// moment. Whoever has asked for too much is refused meanwhile and gives back what it had, and those
// that only met the shortage go on. What cannot be refused, because there is nobody to tell or
// nothing that could be undone, says so with a PatientScope and waits much longer. So does every
// thread that is unwinding, where one more exception would end the process.
//
// malloc() itself, and with it SQLite and OpenSSL, fails at once as ever.
#pragma once

#include <cstdint>

namespace skein {

// For main(): from now on `operator new` of every thread waits for memory.
void wait_for_memory();

// While one lives, allocations of its thread wait long before they fail. Scopes may nest.
class PatientScope {
 public:
  PatientScope() { ++depth_; }
  ~PatientScope() { --depth_; }
  PatientScope(const PatientScope&) = delete;
  PatientScope& operator=(const PatientScope&) = delete;

  static bool is_open() { return depth_ > 0; }

 private:
  static inline thread_local uint32_t depth_ = 0;
};

}  // namespace skein
