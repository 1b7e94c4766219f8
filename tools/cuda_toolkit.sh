#!/usr/bin/env bash
# Prints the path of an nvcc: the one this machine has, or one made of the wheels of tools/requirements-cuda.txt,
# which go to build/cuda (100 MB to fetch). Needs no root.
set -euo pipefail
cd "$(dirname "$0")/.."

for nvcc in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
  [ -x "$nvcc" ] && { echo "$nvcc"; exit 0; }
done
folder=build/cuda stamp=build/cuda/requirements.txt
toolkit=$PWD/$folder/nvidia/cu13
if ! cmp -s tools/requirements-cuda.txt "$stamp"; then
  echo "cuda_toolkit: there is no nvcc; fetching it from PyPI into $folder" >&2
  rm -rf "$folder"
  mkdir -p build
  { /usr/bin/python3 -m venv build/cuda.venv &&
      build/cuda.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes \
        --no-deps --only-binary :all: --target "$folder" -r tools/requirements-cuda.txt >&2; } || {
    rm -rf "$folder" build/cuda.venv
    echo "cuda_toolkit: the wheels could not be fetched; install CUDA 12.9 or newer, or build without CUDA=1" >&2
    exit 1
  }
  rm -rf build/cuda.venv
  ln -s lib "$toolkit/lib64" # where nvcc looks
  ln -s libcudart.so.13 "$toolkit/lib/libcudart.so" # what CMake takes for a sign of a toolkit; the static one is linked
  cp tools/requirements-cuda.txt "$stamp"
fi
echo "$toolkit/bin/nvcc"
