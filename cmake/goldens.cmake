# Unpacks tests/model/goldens.tar.xz into build/goldens, once for all build trees: tests in C++ and in Python find it there. Included by
# tests/CMakeLists.txt; `cmake -P cmake/goldens.cmake` does the same for tests that need no build tree of their own.
set(goldens_archive ${CMAKE_CURRENT_LIST_DIR}/../tests/model/goldens.tar.xz)
set(goldens_folder ${CMAKE_CURRENT_LIST_DIR}/../build/goldens)
file(SHA256 ${goldens_archive} goldens_sum)
set(goldens_stamp "")
if(EXISTS ${goldens_folder}/.sha256)
  file(READ ${goldens_folder}/.sha256 goldens_stamp)
endif()
if(NOT goldens_stamp STREQUAL goldens_sum)
  file(REMOVE_RECURSE ${goldens_folder})
  file(ARCHIVE_EXTRACT INPUT ${goldens_archive} DESTINATION ${goldens_folder})
  file(WRITE ${goldens_folder}/.sha256 ${goldens_sum})
endif()
