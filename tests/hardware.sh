#!/bin/sh
# Runs those tests of a GoogleTest binary that need hardware which not every machine has, and counts them:
#   hardware.sh BINARY FILTER
# Exit status 77: this machine can run none of them.
"$1" --gtest_filter="$2" >"${TMPDIR:-/tmp}/hardware.$$"
status=$?
cat "${TMPDIR:-/tmp}/hardware.$$"
ran=$(grep -c '^\[       OK \]' "${TMPDIR:-/tmp}/hardware.$$")
lacking=$(grep -c '^\[  SKIPPED \] .*(' "${TMPDIR:-/tmp}/hardware.$$")
rm -f "${TMPDIR:-/tmp}/hardware.$$"
echo "hardware: $ran cases ran, $lacking found what they need missing"
[ "$status" -eq 0 ] || exit "$status"
[ "$ran" -gt 0 ] || exit 77
