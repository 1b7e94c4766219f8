# Writes the commit that is built into a header, where it differs from what stands there:
#   cmake -DSOURCE=<root> -DHEADER=<file> -P cmake/commit.cmake
# An archive made by git has it in packaging/commit; elsewhere git knows.
file(READ ${SOURCE}/packaging/commit commit)
string(STRIP "${commit}" commit)
if(NOT commit MATCHES "^[0-9a-f]+$")
  set(commit unknown)
  if(EXISTS ${SOURCE}/.git)
    execute_process(COMMAND git describe --always --abbrev=40 --exclude=* --dirty=-changed WORKING_DIRECTORY ${SOURCE}
                    OUTPUT_VARIABLE described RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT failed)
      set(commit ${described})
    endif()
  endif()
endif()
set(text "// Made by cmake/commit.cmake.\n#pragma once\n\nnamespace skein::apps {\n\ninline constexpr char kCommit[] = \"${commit}\";\n\n}  // namespace skein::apps\n")
if(EXISTS ${HEADER})
  file(READ ${HEADER} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
  file(WRITE ${HEADER} "${text}")
endif()
