#!/usr/bin/env bash
# Runs every libFuzzer target of a build tree: tools/fuzz.sh BUILD SECONDS JOBS. New inputs go to
# BUILD/corpus/<target>, findings to BUILD/findings/<target>; the last line is the count of findings.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 seconds=$2 jobs=$3

fuzz_one() {
  local target=$1 name found grown
  name=$(basename "$target" _fuzz)
  found="$build/findings/$name/" grown="$build/corpus/$name"
  mkdir -p "$found" "$grown"
  local timeout=1
  case $name in jinja | chat_template | *_form) timeout=20 ;; esac # they run to the server's own limits
  "$target" -max_total_time="$seconds" -timeout=$timeout -rss_limit_mb=1024 -malloc_limit_mb=1024 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix="$found" "$grown" "fuzz/corpus/$name" >"$build/$name.log" 2>&1 || true
  echo "fuzz: $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$name.log") inputs," \
    "$(find "$found" -type f | wc -l) findings (log: $build/$name.log)"
}
export -f fuzz_one
export build seconds
rm -rf "$build/findings"
find "$build/fuzz" -maxdepth 1 -name '*_fuzz' -type f | sort | xargs -P "$jobs" -I{} bash -c 'fuzz_one {}'
total=$(find "$build/findings" -type f | wc -l)
echo "fuzz: $total findings"
[ "$total" -eq 0 ]
