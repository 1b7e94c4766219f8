#!/usr/bin/env bash
# Makes build/venv with the Python packages of tools/requirements-test.txt, which some tests compare
# skein against; with a name, build/venv-NAME with those of tools/requirements-NAME.txt. Without a
# network those tests are skipped, not failed.
#   tools/python_env.sh [fleet]
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=tools/requirements-${1:-test}.txt
venv=build/venv${1:+-$1}
stamp=$venv/requirements.txt
cmp -s "$wanted" "$stamp" && exit 0
mkdir -p build
{ /usr/bin/python3 -m venv --system-site-packages "$venv" &&
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
      --require-hashes --no-deps --only-binary :all: -r "$wanted" &&
    cp "$wanted" "$stamp"; } ||
  echo "python_env: $venv could not be made; the tests that compare with Python packages will be skipped"
