#!/usr/bin/env bash
# Everything that needs a GPU, on a machine that need have nothing but the driver:
#   tools/gpu_check.sh pack   where skein is built: leaves binaries, their libraries and the tiny models in build/gpu
#   tools/gpu_check.sh run    where the GPU is, from a folder with this script and build/gpu: runs all of it, prints what came of it
set -uo pipefail
cd "$(dirname "$0")/.."
out=build/gpu
tests="tests/backend/backend_conformance_test tests/model/model_cuda_test"

pack() {
  rm -rf "$out"
  mkdir -p "$out/lib" && tar -C build/goldens -cJf "$out/goldens.tar.xz" . || exit 1
  for binary in build/skein ${tests//tests\//build/release/tests/}; do
    [ -x "$binary" ] || { echo "gpu_check: $binary is not built, left out" >&2; continue; }
    cp "$binary" "$out" && strip "$out/${binary##*/}"
    ldd "$binary" | awk '$3 ~ /^\// { print $3 }' | grep -vE '/(libc|libm|libpthread|libdl|librt)\.so' | xargs -r cp -n -L -t "$out/lib"
  done
  pwd >"$out/source_dir"
  du -sh "$out"
}

# What a test binary says, shortened to what matters.
suite() {
  local name=$1 filter=$2 started=$SECONDS
  [ -x "$out/$name" ] || { echo "$name: not there"; failed=1; return; }
  timeout 220 "$out/$name" --gtest_filter="$filter" --gtest_color=no >"$out/$name.log" 2>&1
  local status=$?
  grep -E '^\[  (FAILED|SKIPPED) |[Ff]ailure|CUDA:|is .*, not |error while loading' "$out/$name.log" | head -40
  grep -E '^\[ +OK ' "$out/$name.log" | sort -t'(' -k2 -rn | head -5
  echo "$name: exit $status, $(grep -c '^\[       OK ' "$out/$name.log") passed, $(grep -cE '^\[  FAILED  \].*\(' "$out/$name.log") failed, $((SECONDS - started)) s"
  [ "$status" -eq 0 ] || failed=1
}

run() {
  failed=0
  nvidia-smi 2>&1 | head -20
  export LD_LIBRARY_PATH=$PWD/$out/lib
  for binary in "$out"/*_test "$out/skein"; do
    [ -x "$binary" ] && ldd "$binary" 2>&1 | grep -E 'not found|GLIBC'
  done
  local source_dir
  source_dir=$(cat "$out/source_dir")
  [ -e "$source_dir" ] || { mkdir -p "${source_dir%/*}" && ln -s "$PWD" "$source_dir"; }
  if [ ! -d build/goldens ]; then
    mkdir -p build/goldens
    tar -C build/goldens -xJf "$out/goldens.tar.xz" || python3 -c "import tarfile; tarfile.open('$out/goldens.tar.xz').extractall('build/goldens')" || failed=1
  fi
  suite backend_conformance_test '*cuda*'
  suite model_cuda_test '*'
  if [ -x "$out/gpu_ops" ]; then "$out/gpu_ops" 2>&1 || failed=1; fi
  if [ -x "$out/skein" ]; then  # a whole engine on the device, with random weights
    "$out/skein" bench --dummy-weights build/goldens/llama/config.json --dummy-quant F16 --device cuda --precision f32 --kv-dtype f32 \
      --prompt-tokens 64 -n 16 --prompts 8 --concurrency 1 8 --no-single --no-limits 2>&1 || failed=1
  fi
  echo "gpu_check: $([ $failed -eq 0 ] && echo all passed || echo FAILED)"
  return $failed
}

case ${1:-} in
  pack | run) "$1" ;;
  *) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
