#!/usr/bin/env bash
# Everything that needs a GPU, on a machine that need have nothing but the driver:
#   tools/gpu_check.sh pack   where skein is built: leaves binaries, their libraries and the tiny models in build/gpu
#   tools/gpu_check.sh run [PART ...]   where the GPU is, from a folder with this script and build/gpu: runs all of it, or the parts
#                              named (tests, lost, model, layers, ops, invariance, serve, http, drawn, interference, bench, sanitize, profile); what they say goes to
#                              build/gpu/gpu_check.log, a table of what came of them is printed and is in build/gpu/gpu_check.json
#   tools/gpu_check.sh keep    where the GPU is: takes model.gguf, or pieces of it called model.part1, model.part2, ... (one or more at a
#                              time), out of build/gpu into build/gpu-model, where `run` finds the default model for the part `model`
set -uo pipefail
cd "$(dirname "$0")/.."
out=build/gpu
tests="tests/backend/backend_conformance_test tests/model/model_cuda_test tests/engine/engine_cuda_test"
kept=build/gpu-model
model=$kept/cache/skein/models/SmolLM2-135M-Instruct.Q4_1.gguf # where tests look for it

pack() {
  rm -rf "$out"
  mkdir -p "$out/lib" && tar -C build/goldens -cJf "$out/goldens.tar.xz" . || exit 1
  for binary in build/skein build/release/microbench/skein_device_ops build/release/tests/engine/skein_invariance \
    build/release/tests/apps/libskein_lose_device.so ${tests//tests\//build/release/tests/}; do
    [ -x "$binary" ] || { echo "gpu_check: $binary is not built, left out" >&2; continue; }
    cp "$binary" "$out" && strip "$out/${binary##*/}"
    ldd "$binary" | awk '$3 ~ /^\// { print $3 }' | grep -vE '/(libc|libm|libpthread|libdl|librt)\.so' | xargs -r cp -n -L -t "$out/lib"
  done
  cp tools/gpu_check.sh tools/random_model.py "$out"
  pwd >"$out/source_dir"
  du -sh "$out"
}

# The default model, once all of it is there; its reference prompts say what it has to be.
keep() {
  mkdir -p "${model%/*}"
  for piece in "$out"/model.gguf "$out"/model.part* build/gpu-parts/model.part*; do
    [ -e "$piece" ] && mv "$piece" "$kept/"
  done
  [ -e "$kept/model.gguf" ] && mv "$kept/model.gguf" "$model"
  [ -e "$model" ] && return
  local wanted
  wanted=$(grep -o '"sha256": *"[0-9a-f]*"' build/goldens/smollm2.json 2>/dev/null | head -1 | grep -o '[0-9a-f]\{64\}')
  cat "$kept"/model.part* >"$model.joined" 2>/dev/null
  if [ "$(sha256sum <"$model.joined" | cut -d' ' -f1)" = "$wanted" ]; then
    mv "$model.joined" "$model"
  else
    rm -f "$model.joined"
    echo "model: kept $(ls -s "$kept"/model.part* 2>/dev/null | tr '\n' ' ')"
  fi
}

# What a test binary says, shortened to what matters; lines of a pattern, too.
suite() {
  local name=$1 filter=$2 started=$SECONDS
  [ -x "$out/$name" ] || { echo "$name: not there"; failed=1; return; }
  timeout 220 "$out/$name" --gtest_filter="$filter" --gtest_color=no >"$out/$name.log" 2>&1
  local status=$?
  [ -z "${3:-}" ] || grep -E "$3" "$out/$name.log"
  grep -E '^\[  (FAILED|SKIPPED) |[Ff]ailure|CUDA:|is .*, not |error while loading' "$out/$name.log" | head -40
  grep -E '^\[ +OK ' "$out/$name.log" | sort -t'(' -k2 -rn | head -5
  echo "$name: exit $status, $(grep -c '^\[       OK ' "$out/$name.log") passed, $(grep -cE '^\[  FAILED  \].*\(' "$out/$name.log") failed, $((SECONDS - started)) s"
  [ "$status" -eq 0 ] && grep -q '^\[       OK ' "$out/$name.log" || failed=1 # no test at all is no success
}

# Tokens a second on the device: a shape, what its weights are, options.
bench() {
  local name=$1-$2${suffix:+-$suffix} started=$SECONDS
  echo "bench $name:"
  timeout 240 "$out/skein" bench --shape "$1" --type "$2" --device cuda --no-single --no-limits \
    --save "$out/bench-$name.json" "${@:3}" 2>&1 | tail -12
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
  echo "bench $name: $((SECONDS - started)) s"
}

# What a tool of compute-sanitizer found: its own sum, and how often each kind was seen in which kernels.
findings() {
  python3 - "$1" <<'END'
import collections, re, sys
lines = [line.rstrip() for line in open(sys.argv[1], errors="replace") if line.startswith("=========")]
kinds, title = collections.Counter(), ""
for line in lines:
    text = line.strip("= ").strip()
    if re.match(r"(Error|Warning|Invalid|Uninitialized|Barrier|Potential|Divergent|Program hit)", text):
        title = re.sub(r" at .*| \[.*|0x[0-9a-f]+", "", text)
    found = re.search(r"(?:(Read|Write) access )?\bat (?:void )?(.+?)\+(0x[0-9a-f]+)", text)
    if found and "Host Frame" not in text:
        kernel = re.sub(r"skein::cuda::|<unnamed>::|\(anonymous namespace\)::|\(unsigned int\)|\(bool\)", "", found[2]).split("(")[0]
        kinds[f"{title[:50]}: {found[1] or ''} {kernel[:60]}+{found[3]}"] += 1
for kind, count in kinds.most_common(16):
    print(f"  {count:5} x {kind}")
END
}

# compute-sanitizer's tools over a few tests, where the machine has it.
sanitize() {
  local short='*OpsInARow*cuda*default*:*LinearOps.OddShapes/cuda*default*:*LinearOps.CodesOfFourBits/cuda*default*:*LinearOps.CodesInUnevenSegments/cuda*default*:*Peaks*cuda*default*' tool
  command -v compute-sanitizer >/dev/null || { echo "sanitize: no compute-sanitizer here"; return; }
  for tool in memcheck racecheck initcheck synccheck; do
    timeout 120 compute-sanitizer --tool $tool --error-exitcode 9 --print-limit 400 "$out/backend_conformance_test" \
      --gtest_filter="$short" --gtest_brief=1 >"$out/$tool.log" 2>&1
    local status=$?
    echo "sanitize $tool: exit $status, $(tail -1 "$out/$tool.log")"
    findings "$out/$tool.log"
    # racecheck takes bulk copies for races, which an mbarrier orders: docs/PERFORMANCE.md says of attend_in_ring; attend_whole_rows and attend_prompt_rows have the same ring.
    [ $status -eq 0 ] || { [ $tool = racecheck ] && grep -qE ' access at .*attend_(in_ring|whole_rows|prompt_rows)' "$out/$tool.log" && ! grep ' access at ' "$out/$tool.log" | grep -qvE 'attend_(in_ring|whole_rows|prompt_rows)'; } || failed=1
  done
}

# Every kernel of one layer of 1 and of 64 rows, where the machine has a profiler.
profile() {
  command -v ncu >/dev/null || { echo "profile: no ncu here"; return; }
  timeout 120 ncu --clock-control none --metrics gpu__time_duration.sum,dram__bytes_read.sum --csv "$out/skein_device_ops" cuda once \
    >"$out/profile.csv" 2>&1
  python3 - "$out/profile.csv" <<'END'
import csv, sys
rows = [r for r in csv.reader(open(sys.argv[1])) if len(r) > 12 and r[0].isdigit()]
for r in rows:
    if r[-3].startswith("gpu__time"):
        print(f"profile {r[-1]:>9} {r[-2]} grid {r[8]} block {r[7]} {r[4].split('(')[0][-90:]}")
END
}

# Makes what the binaries need: their libraries, the folder they were built in, the tiny models.
prepare() {
  nvidia-smi 2>&1 | head -20
  for binary in "$out"/*_test "$out/skein"; do
    [ -x "$binary" ] && ldd "$binary" 2>&1 | grep -E 'not found|GLIBC'
  done
  local source_dir
  source_dir=$(cat "$out/source_dir")
  [ -e "$source_dir" ] || { mkdir -p "${source_dir%/*}" && ln -s "$PWD" "$source_dir"; }
  [ -d build/goldens ] && return
  mkdir -p build/goldens
  tar -C build/goldens -xJf "$out/goldens.tar.xz" || python3 -c "import tarfile; tarfile.open('$out/goldens.tar.xz').extractall('build/goldens')" || failed=1
}

part_tests() {
  suite backend_conformance_test '*cuda*:Seeded*'
  SKEIN_RECORD=products timeout 60 "$out/backend_conformance_test" --gtest_filter='Recorded*' --gtest_brief=1 2>&1 | tail -5
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
  suite model_cuda_test '*'
  suite engine_cuda_test 'CudaDraws.*'
}
part_lost() { # a device that is lost is lost to the process: one for each
  for case in ByAWriteToNowhere ByATrap MoreMemoryThanThereIsIsRefusedWithBothNumbersAndNothingIsLost; do
    suite engine_cuda_test "CudaLost.$case" '^(provoked|ended with|it came|it stayed)|was lost|loaded anew|is gone'
  done
}
part_model() {
  keep
  [ -e "$model" ] || { echo "model: the default model is not there"; failed=1; }
  XDG_CACHE_HOME=$PWD/$kept/cache suite engine_cuda_test 'CudaDefaultModel.*' 'mean KL|float32 run'
}
part_layers() {
  local layers
  for layers in BF16 Q4_0 Q4_K "BF16 1b" "Q4_0 1b"; do
    echo "layers of $layers:"
    # shellcheck disable=SC2086
    timeout 60 "$out/skein_device_ops" cuda layers $layers || failed=1
  done
}
part_ops() { timeout 120 "$out/skein_device_ops" cuda ops || failed=1; }
part_invariance() {
  timeout 200 "$out/skein_invariance" 2>&1 | tail -6
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
}
part_serve() { # the server in its sandbox
  SKEIN_TEST_BINARY=$out/skein SKEIN_TEST_LOSER=$PWD/$out/libskein_lose_device.so timeout 150 \
    python3 -B tests/apps/serve_device_test.py 2>&1 | tail -12
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
}
part_bench() { # whole engines on the device, with random weights
  local shape type
  for shape in llama-1b llama-8b; do
    for type in bf16 q4_0; do
      bench $shape $type --prompt-tokens 256 -n 128 --prompts 16 --concurrency 1,64 --step-tokens 2048
    done
  done
  for type in q8_0 q4_K; do # of which the kernels are others
    bench llama-8b $type --prompt-tokens 256 -n 64 --prompts 8 --concurrency 1,64 --step-tokens 2048
  done
}
# Over HTTP, 64 clients of a model of random weights, beside the same in this process; then drawn tokens, and long prompts of others.
part_http() {
  local shape=${SHAPE:-llama-8b} folder server tries=0
  folder=$(mktemp -d /dev/shm/skein-XXXXXX)
  python3 "$out/random_model.py" "$shape" "$folder" || failed=1
  "$out/skein" serve --model "$folder" --served-model-name "$shape" --device cuda --port 18099 --state-dir "$folder/state" --no-log-requests \
    --batch-max-batch-size 64 >"$out/serve.log" 2>&1 &
  server=$!
  until python3 -c 'import urllib.request as r; r.urlopen("http://127.0.0.1:18099/health")' 2>/dev/null; do
    sleep 0.2
    tries=$((tries + 1))
    [ $tries -lt 300 ] && kill -0 $server 2>/dev/null || break
  done
  grep -h 'loaded in' "$out/serve.log"
  timeout 120 "$out/skein" bench serve --url http://127.0.0.1:18099 --prompt-tokens 256 -n 128 --prompts 128 --concurrency 64 \
    --save "$out/bench-$shape-http.json" 2>&1 | tail -6
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
  kill $server
  wait $server
  rm -rf "$folder"
}
part_drawn() {
  suffix=drawn bench llama-1b bf16 --prompt-tokens 256 -n 128 --prompts 128 --concurrency 64 --step-tokens 2048 --temperature 0.8
}
part_interference() { # what prompts of 2,000 tokens that keep arriving do to 64 streams
  suffix=disturbed bench llama-8b bf16 --prompt-tokens 256 -n 256 --prompts 64 --concurrency 64 --step-tokens 2048 --interference 2000 --inter-token-target-ms 8
}
part_sanitize() { sanitize; }
part_profile() { profile; }

# What came of the parts, from lines of "part status seconds" and what the benches saved.
table() {
  python3 - "$out" <<'END'
import glob, json, re, sys
out = sys.argv[1]
parts = [line.split() for line in open(f"{out}/parts.txt")]
log = open(f"{out}/gpu_check.log", errors="replace").read()
said = re.findall(r"^\w+_test: exit .*|^sanitize \w+: .*|^.*(?:mean KL|differ).*$", log, re.M)[:16]
rows = []
for name in sorted(glob.glob(f"{out}/bench-*.json")):
    for r in json.load(open(name))["results"]:
        rows.append({"bench": name.rsplit("bench-")[-1][:-5], "at_once": r["concurrency"], "decode_per_second": round(r["decode_tokens_per_second"]),
                     "prefill_per_second": round(r["prefill_tokens_per_second"]), "between_ms": r["itl_p50_ms"],
                     "steady_p99_ms": r["steady_itl_p99_ms"], "mode": r["mode"],
                     **{name: r.get(name) for name in ("outside_model_percent", "engine_us_per_step", "device_pause_us")}})
print(f"{'part':<12} {'result':<8} seconds")
for part, status, seconds in parts:
    print(f"{part:<12} {'passed' if status == '0' else 'FAILED':<8} {seconds:>7}")
for line in said:
    print("  " + line[:150])
if rows:
    print(f"{'bench':<32} {'at once':>7} {'decode/s':>9} {'prefill/s':>9} {'between ms':>10} {'steady p99':>10} {'engine us':>9} {'pause us':>8}")
for r in rows:
    name = r["bench"] + (" disturbed" if r["mode"] == "disturbed" else "")
    print(f"{name:<32} {r['at_once']:>7} {r['decode_per_second']:>9} {r['prefill_per_second']:>9} {r['between_ms']:>10.3f}"
          f" {r['steady_p99_ms']:>10.3f} {r['engine_us_per_step'] or 0:>9.1f} {r['device_pause_us'] or 0:>8.1f}")
json.dump({"parts": [{"part": p, "passed": s == "0", "seconds": int(t)} for p, s, t in parts], "said": said, "bench": rows},
          open(f"{out}/gpu_check.json", "w"), indent=1)
END
}

run() {
  local all_started=$SECONDS any_failed=0 part started
  export LD_LIBRARY_PATH=$PWD/$out/lib
  rm -f "$out"/bench-*.json "$out/parts.txt"
  failed=0
  prepare >"$out/gpu_check.log" 2>&1
  any_failed=$failed
  for part in ${*:-tests lost model layers ops invariance serve http drawn interference bench sanitize profile}; do
    failed=0
    started=$SECONDS
    "part_$part" >>"$out/gpu_check.log" 2>&1
    echo "$part $failed $((SECONDS - started))" >>"$out/parts.txt"
    [ $failed -eq 0 ] || any_failed=1
  done
  table
  echo "gpu_check: $([ $any_failed -eq 0 ] && echo all passed || echo FAILED), $((SECONDS - all_started)) s; $out/gpu_check.log and gpu_check.json have the rest"
  return $any_failed
}

case ${1:-} in
  pack | run | keep) "$@" ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
