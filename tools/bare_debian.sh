#!/usr/bin/env bash
# `make serve` as a newcomer types it: a bare Debian 12 is made in build/bare from this machine's own apt source, HEAD is put into it, and
# there skein is built, serves the default model, answers a chat and ends at Ctrl-C. Needs root and mmdebstrap.
#   tools/bare_debian.sh [--keep]
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD/build/bare keep=${1:-}
[ "$(id -u)" -eq 0 ] || { echo "bare_debian: only root can make a Debian in a folder" >&2; exit 1; }
unshare --mount --pid --fork true 2>/dev/null || { echo "bare_debian: left out, since this machine allows nobody a namespace"; exit 0; }
rm -rf "$root"
mkdir -p build
[ "$keep" = --keep ] || trap 'rm -rf "$root"' EXIT
mmdebstrap --quiet --variant=minbase --include=make bookworm "$root"

# What of this machine says where packages come from; everything else in there is Debian's.
cp -r /etc/apt/apt.conf.d "$root/etc/apt/"
for file in /etc/pip.conf /etc/resolv.conf /etc/hosts; do [ ! -e "$file" ] || cp "$file" "$root$file"; done
if [ -d /usr/local/share/ca-certificates ]; then cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"; fi

mkdir "$root/skein"
git archive HEAD | tar -x -C "$root/skein"
# The model is fetched once for a machine; a copy of it leaves the packages to be fetched.
model=$(tools/get_model.sh)
mkdir -p "$root/root/.cache/skein/models"
cp -p "$model" "$model.sha256" "$root/root/.cache/skein/models/"

cat >"$root/newcomer.sh" <<'INSIDE'
set -euo pipefail
cd /skein
make serve PORT=18099 >/serve.log 2>&1 &
serve=$!
ask() {
  python3 - <<'ASK'
import json
import urllib.request
body = json.dumps({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}).encode()
request = urllib.request.Request("http://127.0.0.1:18099/v1/chat/completions", body, {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request, timeout=60))["usage"])
ASK
}
while ! ask 2>/dev/null; do
  kill -0 $serve 2>/dev/null || { tail -30 /serve.log; exit 1; }
  sleep 2
done
echo "it answered after $SECONDS s"
kill -INT "$(pgrep -x skein)"
wait $serve
INSIDE
# procps has pgrep; a person has Ctrl-C.
unshare --mount --pid --fork --kill-child chroot "$root" /bin/bash -c '
  mount -t proc proc /proc && mount -t tmpfs tmpfs /dev/shm 2>/dev/null || true
  [ -e /dev/null ] || mknod -m 666 /dev/null c 1 3
  [ -e /dev/urandom ] || mknod -m 666 /dev/urandom c 1 9
  apt-get update -qq && apt-get install -y -qq --no-install-recommends procps >/dev/null
  env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash /newcomer.sh'
echo "bare_debian: make serve works on a bare Debian 12"
