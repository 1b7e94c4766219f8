#!/usr/bin/env bash
# Makes build/dynamo with the Python packages of tools/requirements-dynamo.txt, for tests that run Dynamo itself.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=build/dynamo/requirements.txt
cmp -s tools/requirements-dynamo.txt "$stamp" && exit 0
mkdir -p build
/usr/bin/python3 -m venv build/dynamo
build/dynamo/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --no-deps \
  --only-binary :all: -r tools/requirements-dynamo.txt
cp tools/requirements-dynamo.txt "$stamp"
