// How much of the machine this process may use.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace skein {

// How many threads are worth computing with: cores that this process may run on, each counted once
// however many threads of its own it has, or what the control groups above it grant in whole CPUs,
// whichever is less; 1 at least. `root` is where /proc and /sys are looked for; tests give a folder
// of their own.
uint32_t usable_cpus(const std::string& root = "");

// The memory that it may still take, in bytes: the least of what the machine has available and of
// what every control group (version 2 or 1) above this process leaves: its limit less its use,
// where file cache does not count as use, since the kernel gives it back on demand. UINT64_MAX when
// nothing can be read. `root` is where /proc and /sys are looked for; tests give a folder of their
// own.
uint64_t available_memory(const std::string& root = "");

// The calling thread gives way to the others of this process, for good, and so do threads that it
// starts: where the others leave no CPU idle, it gets about a tenth of one. Where a filter of
// system calls refuses that, it goes on as before.
void give_way();
// To be called now and then in long work, a few thousand times a second: a thread that gives way
// lets another have its CPU at once, instead of when the kernel next looks, some milliseconds
// later. Nothing on other threads.
void give_turn();
// Long work of a thread that gives way, on a thread of its own: whoever gives way may be kept from
// its CPU while it holds a lock of the allocator, and then those wait for it who give back what it
// has allocated. So nothing but the work's result comes from there. What it throws is thrown here.
// On a thread that gives way to nobody, and where no other can be had, it runs here.
void run_apart(const std::function<void()>& work);

}  // namespace skein
