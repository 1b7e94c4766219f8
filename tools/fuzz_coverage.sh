#!/usr/bin/env bash
# How much of the code that each fuzz target is about its inputs reach: tools/fuzz_coverage.sh BUILD. BUILD is a tree of
# the preset `coverage`; inputs are fuzz/corpus and, where `make fuzz` has run, build/fuzz/corpus. One line per target, the
# last line is the lowest figure and how many targets are below the floor without a reason; then the status is 1.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
lowest=100
floor=80 # percent
below=0

# The sources that a target is about, as llvm-cov takes them.
sources_of() {
  case $1 in
    scheduler) echo src/sched src/kv ;;
    gguf) echo src/format/gguf.cpp src/format/gguf_metadata.cpp src/format/byte_reader.h ;;
    safetensors) echo src/format/safetensors.cpp ;;
    jinja) echo src/text/jinja ;;
    chat_template) echo src/engine/loading/load_text.cpp src/generate/prompt.cpp src/text/chat_template.cpp ;;
    tokenizer) echo src/text/bpe.cpp src/text/unigram.cpp src/text/added_tokens.cpp src/text/tokenizer.cpp src/text/splitter.cpp ;;
    tokenizer_json) echo src/text/tokenizer_json.cpp ;;
    load_tokenizer) echo src/engine/loading/load_text.cpp src/engine/loading/gguf_tokenizer.cpp src/text/markers.cpp src/text/vocabulary.cpp ;;
    detokenizer) echo src/text/text_assembler.cpp ;;
    config) echo src/model/families src/model/rope.cpp src/model/spec.cpp ;;
    decoder) echo src/model/decoder.cpp src/model/weights.cpp ;;
    sampling_defaults) echo src/engine/loading/load_text.cpp ;;
    pooling) echo src/engine/loading/vectors.cpp src/format/hf_documents.cpp ;;
    http) echo src/server/http/request_parser.cpp ;;
    json_body) echo src/server/api ;;
    multipart) echo src/server/http/multipart.cpp ;;
    zmtp) echo src/server/kv_events/zmtp.cpp ;;
    grpc_generate) echo src/server/grpc/generate_request.cpp ;;
    regex_form) echo src/grammar/regex.cpp src/grammar/regex_derive.cpp src/grammar/regex_parser.cpp src/grammar/pattern_tree.cpp ;;
    schema_form) echo src/grammar/json_schema.cpp src/grammar/json_value.cpp src/grammar/schema_reader.cpp src/grammar/schema_scalars.cpp src/grammar/schema_structures.cpp src/grammar/schema_values.cpp ;;
    gbnf_form) echo src/grammar/gbnf.cpp ;;
    answer_parser) echo src/dialog/answer_parser.cpp src/dialog/call_body.cpp src/dialog/tagged_body.cpp src/dialog/loose_body.cpp src/dialog/harmony.cpp ;;
    find_format) echo src/dialog/find_format.cpp src/dialog/find_calls.cpp src/dialog/template_probe.cpp ;;
    lark_form) echo src/grammar/lark.cpp src/grammar/lark_parser.cpp ;;
    sse_answer) echo src/bench/sse_answer.cpp ;;
    *) echo "fuzz-coverage: $1 has no sources here" >&2; return 1 ;;
  esac
}

# Why a target may stay below the floor; nothing where it may not.
reason_of() {
  case $1 in
    # name) echo "its sources also do what no input reaches" ;;
    *) ;;
  esac
}

for target in "$build"/fuzz/*_fuzz; do
  name=$(basename "$target" _fuzz)
  inputs=("fuzz/corpus/$name")
  [ -d "build/fuzz/corpus/$name" ] && inputs+=("build/fuzz/corpus/$name")
  read -r -a wanted <<<"$(sources_of "$name")"
  sources=()
  for path in "${wanted[@]}"; do [ -e "$path" ] && sources+=("$path"); done
  LLVM_PROFILE_FILE="$build/$name.profraw" "$target" "${inputs[@]}" >/dev/null
  llvm-profdata-19 merge -sparse "$build/$name.profraw" -o "$build/$name.profdata"
  percent=$(llvm-cov-19 export -summary-only -instr-profile "$build/$name.profdata" "$target" "${sources[@]}" |
    python3 -c 'import json, sys; print("%.1f" % json.load(sys.stdin)["data"][0]["totals"]["lines"]["percent"])')
  note=
  if python3 -c "import sys; sys.exit($percent >= $floor)"; then
    reason=$(reason_of "$name")
    note="; below $floor %, ${reason:-and nothing says why it may be}"
    [ -n "$reason" ] || below=$((below + 1))
  fi
  echo "fuzz-coverage: $name: $percent % of the lines of ${sources[*]}$note"
  lowest=$(python3 -c "print(min($lowest, $percent))")
done
echo "fuzz-coverage: lowest $lowest %, $below targets below $floor %"
[ "$below" -eq 0 ]
