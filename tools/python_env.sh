#!/usr/bin/env bash
# Makes build/venv with the Python packages of tools/requirements-test.txt, which some tests compare
# skein against. Without a network those tests are skipped, not failed.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=build/venv/requirements.txt
cmp -s tools/requirements-test.txt "$stamp" && exit 0
mkdir -p build
{ /usr/bin/python3 -m venv --system-site-packages build/venv &&
    build/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
      --require-hashes --no-deps --only-binary :all: -r tools/requirements-test.txt &&
    cp tools/requirements-test.txt "$stamp"; } ||
  echo "python_env: build/venv could not be made; the tests that compare with Python packages will be skipped"
