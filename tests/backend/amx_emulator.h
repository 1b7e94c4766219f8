// The AMX instructions of the kernels in software, for machines that lack them: a handler of SIGILL
// decodes the instruction, executes it on tiles of the thread that it interrupts, and steps over
// it.
//
// What it knows: LDTILECFG, STTILECFG, TILERELEASE, TILEZERO, TILELOADD, TILELOADDT1, TILESTORED,
// TDPBSSD, TDPBSUD, TDPBUSD, TDPBUUD and TDPBF16PS. An instruction of these that a CPU would refuse
// (a tile that is not configured, shapes that do not fit, a configuration that is none) ends the
// process with a line that says why. Any other one meets the default action of SIGILL.
#pragma once

#include <cstdint>

namespace skein {

// For the whole process, from here on. The machine must have AVX2 and FMA, and must not have AMX.
void emulate_amx();

// Instructions executed since then, on all threads.
uint64_t emulated_amx_instructions();

}  // namespace skein
