#!/bin/sh
# The example answers its three questions, and says what is wrong with a model that is not there.
set -eu
model=$(tools/get_model.sh 2>/dev/null) || {
  echo "the default model is not there (make model)"
  [ "${SKEIN_REQUIRE:-}" = all ] && exit 1
  exit 77
}
"$1" "$model" | tee /dev/stderr | grep -q 'is 4'
[ "$("$1" "$model" | grep -c ' tokens, ')" = 3 ]
if "$1" /nowhere 2>/tmp/example.$$; then exit 1; fi
grep -q /nowhere /tmp/example.$$
rm -f /tmp/example.$$
