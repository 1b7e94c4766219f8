# Flags and helpers that every folder shares.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG") # kernels ask for -O3 themselves

find_package(fmt REQUIRED)
find_package(Threads REQUIRED)

# A hundred test binaries are linked; gold takes half of the time, and comes with binutils.
find_program(SKEIN_GOLD ld.gold)
if(SKEIN_GOLD)
  add_link_options(-fuse-ld=gold)
endif()

# GCC would collect its garbage from 128 MiB on, which is a fifth of the time that a test takes to compile. Whether it does depends on
# the machine alone, so that `make serve` finds what `make test` has compiled.
cmake_host_system_information(RESULT memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR memory_mib_a_core "${memory_mib} / ${cores}")
if(memory_mib_a_core GREATER 1500 AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1048576>)
endif()

include(CheckPIESupported)
check_pie_supported() # without it CMake compiles for PIE, but leaves the linking to the compiler
add_link_options(LINKER:-z,relro,-z,now)

add_library(skein_flags INTERFACE)
target_include_directories(skein_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(skein_flags INTERFACE -Wall -Wextra -Wpedantic)
if(NOT SKEIN_SANITIZE) # those trees have another compiler, with warnings of its own
  target_compile_options(skein_flags INTERFACE -Werror)
endif()
if(SKEIN_SANITIZE)
  target_compile_options(skein_flags INTERFACE -fsanitize=${SKEIN_SANITIZE} -fno-omit-frame-pointer
                                               -fno-sanitize-recover=all)
  target_link_options(skein_flags INTERFACE -fsanitize=${SKEIN_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang") # which does not define what GCC does
    string(REGEX MATCH "address|thread" sanitizer ${SKEIN_SANITIZE})
    string(TOUPPER "${sanitizer}" sanitizer)
    target_compile_definitions(skein_flags INTERFACE __SANITIZE_${sanitizer}__)
  endif()
  if(SKEIN_SANITIZE MATCHES "undefined") # a null pointer ends the process anyway, and both double the time to compile
    target_compile_options(skein_flags INTERFACE -fno-sanitize=null,vptr)
  endif()
endif()

# What turns an overrun into an end of the process. Not for kernels: their loops would pay for checks
# of what the shapes have settled. tests/apps/hardening_test.py looks for all of it in the binary.
add_library(skein_hardening INTERFACE)
target_compile_definitions(skein_hardening INTERFACE _GLIBCXX_ASSERTIONS)
target_compile_options(skein_hardening INTERFACE
  "$<$<CONFIG:Release>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2;-fstack-protector-strong;-fstack-clash-protection>")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(skein_hardening INTERFACE $<$<CONFIG:Release>:-fcf-protection>)
endif()

# skein_hardened_sources(a.cpp b.cpp): the same for those sources of a NUMERIC library that are no kernels.
function(skein_hardened_sources)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS $<TARGET_PROPERTY:skein_hardening,INTERFACE_COMPILE_OPTIONS>)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_DEFINITIONS _GLIBCXX_ASSERTIONS)
endfunction()

# skein_library(<folder> SOURCES a.cpp b.cpp LINKS base fmt::fmt): the static library skein_<folder>.
# A bare name in LINKS is another folder of src/. With SKEIN_UNITY several sources are compiled as
# one, which takes a third of the time; OBJECT_PER_SOURCE keeps a library out of that. NUMERIC: it is
# kernels, which are not hardened, and what surrounds them, which skein_hardened_sources names. PARSES: it reads what comes from outside, so with SKEIN_FUZZ it tells libFuzzer
# where an input has been. BUSY: its tests spend their time in it, so it is optimized under sanitizers, too.
function(skein_library name)
  cmake_parse_arguments(ARG "OBJECT_PER_SOURCE;NUMERIC;PARSES;BUSY" "" "SOURCES;LINKS" ${ARGN})
  add_library(skein_${name} STATIC ${ARG_SOURCES})
  if(SKEIN_FUZZ AND ARG_PARSES)
    target_compile_options(skein_${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(SKEIN_SANITIZE AND ARG_BUSY)
    target_compile_options(skein_${name} PRIVATE -O1)
  endif()
  if(NOT ARG_NUMERIC)
    target_link_libraries(skein_${name} PRIVATE skein_hardening)
  endif()
  if(SKEIN_UNITY AND NOT ARG_OBJECT_PER_SOURCE)
    _skein_unity(skein_${name} 8)
  endif()
  target_link_libraries(skein_${name} PUBLIC skein_flags)
  _skein_link(skein_${name} ${ARG_LINKS})
endfunction()

# The headers that every test includes, compiled once.
if(SKEIN_TESTS)
  find_package(GTest REQUIRED)
  add_executable(skein_test_headers EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/cmake/empty.cpp)
  target_link_libraries(skein_test_headers PRIVATE skein_flags GTest::gtest_main GTest::gmock fmt::fmt)
  target_compile_options(skein_test_headers PRIVATE $<$<CONFIG:Release>:-O0>)
  target_precompile_headers(skein_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h> <fmt/format.h>
    <nlohmann/json.hpp> <algorithm> <chrono> <filesystem> <fstream> <functional> <map> <memory> <string>
    <thread> <vector>)
endif()

# What is tested is compiled for speed; what only tests it is compiled for the time that compiling takes.
function(skein_quickly_compiled target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O0>)
  if(TARGET skein_test_headers)
    target_precompile_headers(${target} REUSE_FROM skein_test_headers)
    target_compile_options(${target} PRIVATE $<TARGET_PROPERTY:GTest::gtest,INTERFACE_COMPILE_OPTIONS>) # or GCC would not take them
  endif()
endfunction()

# skein_test(<name> SOURCES a_test.cpp LINKS kv LABELS threads): one GoogleTest binary, one ctest per
# TEST(). LABELS: slow (kept out of sanitizer runs), timing (also runs beside no other test), threads (the TSan run).
# HARDWARE <filter>: the tests that not every machine can run are one ctest, <name>.hardware, which is
# skipped where none of them can.
function(skein_test name)
  cmake_parse_arguments(ARG "" "HARDWARE" "SOURCES;LINKS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE skein_flags GTest::gtest_main GTest::gmock)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE SKEIN_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  skein_quickly_compiled(${name})
  if(SKEIN_UNITY)
    _skein_unity(${name} 20) # most of a test's time goes into the templates of others, and few into its own lines
  endif()
  _skein_link(${name} ${ARG_LINKS})
  set(properties LABELS "${ARG_LABELS}")
  if("timing" IN_LIST ARG_LABELS)
    list(APPEND properties RUN_SERIAL TRUE)
  elseif("slow" IN_LIST ARG_LABELS)
    list(APPEND properties COST 30) # begins early, so that no core waits for it at the end
  endif()
  set(filter)
  if(ARG_HARDWARE)
    set(filter TEST_FILTER "-${ARG_HARDWARE}")
    add_test(NAME ${name}.hardware COMMAND ${CMAKE_SOURCE_DIR}/tests/hardware.sh $<TARGET_FILE:${name}> "${ARG_HARDWARE}")
    set_tests_properties(${name}.hardware PROPERTIES LABELS "hardware;${ARG_LABELS}" SKIP_RETURN_CODE 77 COST 30) # many tests in a row
  endif()
  if(NOT ARG_HARDWARE STREQUAL "*")
    gtest_discover_tests(${name} NO_PRETTY_VALUES ${filter} PROPERTIES ${properties} DISCOVERY_TIMEOUT 60)
  endif()
endfunction()

# skein_mutants(<suite> <variable>): the planted defects of a suite (tests/sim/mutants.py) as a list of names;
# ${<variable>_dir}/<name>.cpp is the mutated source.
function(skein_mutants suite variable)
  set(mutants_py ${CMAKE_SOURCE_DIR}/tests/sim/mutants.py)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${mutants_py})
  execute_process(COMMAND ${Python3_EXECUTABLE} ${mutants_py} --list ${suite} OUTPUT_VARIABLE mutants
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(dir ${CMAKE_CURRENT_BINARY_DIR}/mutants)
  set(names)
  foreach(mutant IN LISTS mutants)
    string(REPLACE "|" ";" mutant "${mutant}")
    list(GET mutant 0 name)
    list(GET mutant 1 file)
    add_custom_command(OUTPUT ${dir}/${name}.cpp COMMAND ${CMAKE_COMMAND} -E make_directory ${dir}
                       COMMAND ${Python3_EXECUTABLE} ${mutants_py} --make ${name} ${dir}/${name}.cpp
                       DEPENDS ${mutants_py} ${CMAKE_SOURCE_DIR}/src/${file} VERBATIM)
    list(APPEND names ${name})
  endforeach()
  set(${variable} ${names} PARENT_SCOPE)
  set(${variable}_dir ${dir} PARENT_SCOPE)
endfunction()

# skein_mutant_tests(<name> <suite> LINKS dialog [SOURCE folder/<name>.cpp]): every planted defect of <name>.cpp's subject is caught by a test of <suite>. A library's
# objects hold several sources each, so the mutated one comes first and counts.
function(skein_mutant_tests name suite)
  if(NOT SKEIN_MUTANTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "SOURCE" "LINKS" ${ARGN})
  if(NOT ARG_SOURCE)
    set(ARG_SOURCE ${name}.cpp)
  endif()
  add_library(${name}_main OBJECT ${ARG_SOURCE})
  set_target_properties(${name}_main PROPERTIES POSITION_INDEPENDENT_CODE OFF) # as executables are, whose headers it shares
  target_compile_options(${name}_main PRIVATE -fPIE)
  target_link_libraries(${name}_main PUBLIC skein_flags GTest::gtest_main GTest::gmock)
  _skein_link(${name}_main ${ARG_LINKS})
  target_include_directories(${name}_main PRIVATE ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${name}_main PRIVATE SKEIN_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  skein_quickly_compiled(${name}_main)
  skein_mutants(${name} mutants)
  foreach(mutant IN LISTS mutants)
    add_executable(mutant_${mutant} ${mutants_dir}/${mutant}.cpp)
    target_link_libraries(mutant_${mutant} PRIVATE ${name}_main)
    target_link_options(mutant_${mutant} PRIVATE LINKER:--allow-multiple-definition)
    skein_quickly_compiled(mutant_${mutant})
    add_dependencies(mutants mutant_${mutant})
    add_test(NAME mutant.${mutant} COMMAND mutant_${mutant})
    set_tests_properties(mutant.${mutant} PROPERTIES PASS_REGULAR_EXPRESSION "FAILED  . ${suite}" LABELS slow)
  endforeach()
endfunction()

# skein_vectors(<test> a_test.cpp): more sources of a test, over the vectors of other projects, which this tree may not hold:
# their cases exist only where the folder stands beside the clone.
function(skein_vectors name)
  if(EXISTS ${CMAKE_SOURCE_DIR}/../shared/vectors)
    target_sources(${name} PRIVATE ${ARGN})
  endif()
endfunction()

# skein_fuzz(<name> LINKS format): fuzz/<name>_fuzz.cpp as the libFuzzer target <name>_fuzz under the presets asan and
# fuzz; elsewhere the same code replays inputs, and is built only when it is asked for (fuzz_targets).
function(skein_fuzz name)
  cmake_parse_arguments(ARG "" "" "LINKS" ${ARGN})
  add_executable(${name}_fuzz ${name}_fuzz.cpp)
  if(NOT TARGET fuzz_targets)
    add_custom_target(fuzz_targets)
  endif()
  add_dependencies(fuzz_targets ${name}_fuzz)
  target_link_libraries(${name}_fuzz PRIVATE skein_flags)
  _skein_link(${name}_fuzz ${ARG_LINKS})
  if(SKEIN_FUZZ)
    target_compile_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
    target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
  else()
    if(NOT TARGET fuzz_replay)
      add_library(fuzz_replay OBJECT EXCLUDE_FROM_ALL replay_main.cpp)
      target_link_libraries(fuzz_replay PRIVATE skein_flags)
    endif()
    target_link_libraries(${name}_fuzz PRIVATE fuzz_replay)
    set_target_properties(${name}_fuzz PROPERTIES EXCLUDE_FROM_ALL ON)
    skein_quickly_compiled(${name}_fuzz)
  endif()
endfunction()

function(_skein_unity target sources)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${sources})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # it takes the sources of a unit for headers
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

function(_skein_link target)
  foreach(link IN LISTS ARGN)
    if(link MATCHES "::" OR TARGET ${link})
      target_link_libraries(${target} PUBLIC ${link})
    else()
      target_link_libraries(${target} PUBLIC skein_${link})
    endif()
  endforeach()
endfunction()
