#!/usr/bin/env bash
# What `make deb` and `make image` left in build/dist, as strangers use it: lintian, then the .deb in a bare Debian 12 made from this
# machine's own apt source (installed, its unit verified, its ExecStart answers a chat as an unprivileged user, removed without a trace),
# then the image, unpacked and run as its own config says. Needs root, mmdebstrap and the default model.
# `twice` builds HEAD once more, in a clone at another path, and compares every byte of the .deb, the tarball and the SPDX list.
#   tools/package_check.sh [deb] [image] [twice]
set -euo pipefail
cd "$(dirname "$0")/.."
dist=${DIST:-build/dist} root=$PWD/build/package-root
[ "$(id -u)" -eq 0 ] || { echo "package_check: only root can make a Debian in a folder" >&2; exit 1; }
unshare --mount --pid --fork true 2>/dev/null || { echo "package_check: left out, since this machine allows nobody a namespace"; exit 0; }
trap 'rm -rf "$root"' EXIT
model=$(tools/get_model.sh)

# Runs a script in $root, with processes of its own that end with it.
inside() {
  mkdir -p "$root/proc" "$root/dev"
  unshare --mount --pid --fork --kill-child --mount-proc="$root/proc" chroot "$root" /bin/bash -euo pipefail -c "
    for device in 'null c 1 3' 'zero c 1 5' 'urandom c 1 9' 'random c 1 8'; do
      set -- \$device
      [ -c /dev/\$1 ] || { rm -f /dev/\$1; mknod -m 666 /dev/\$1 \$2 \$3 \$4; }
    done
    $1"
}

# A chat with the server on the port, by bash alone. The body's length is counted, so that it is plain ASCII.
ask='ask() {
  local body="{\"messages\":[{\"role\":\"user\",\"content\":\"Say hello.\"}],\"max_tokens\":8}" answer
  exec 3<>/dev/tcp/127.0.0.1/$1
  printf "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${#body}\r\nConnection: close\r\n\r\n$body" >&3
  answer=$(cat <&3)
  [[ $answer == HTTP/1.1\ 200* && $answer == *\"completion_tokens\"* ]] || { echo "no answer: $answer" >&2; return 1; }
}
wait_for() {
  local tries
  for ((tries = 0; tries < 600; ++tries)); do
    (exec 3<>/dev/tcp/127.0.0.1/$1 && printf "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" >&3 &&
      read -r line <&3 && [[ $line == *\ 200\ * ]]) 2>/dev/null && return 0
    sleep 0.1
  done
  return 1
}'

check_deb() {
  local deb
  deb=$(ls "$dist"/skein_*.deb)
  lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs "$deb"
  echo "package_check: lintian finds nothing"
  rm -rf "$root"
  mmdebstrap --quiet --variant=minbase --include="systemd,$(dpkg-deb -f "$deb" Depends | sed 's/ *([^)]*)//g; s/, /,/g')" bookworm "$root"
  cp "$deb" "$root/skein.deb"
  # Everything that a removal must leave behind as it was; what dpkg itself keeps is not looked at.
  local list='find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /run -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache \) -prune -o -printf "%p\n" | sort'
  inside "$list >/tmp/before
    dpkg -i /skein.deb >/dev/null
    systemd-analyze verify /usr/lib/systemd/system/skein.service
    skein --version --verbose"
  mkdir -p "$root/var/lib/skein/models"
  cp "$model" "$root/var/lib/skein/models/"
  inside "$ask"'
    # The command and the variables of the unit, as a user that nobody else is, as DynamicUser gives it.
    unit=/usr/lib/systemd/system/skein.service
    command=$(sed -n "s/^ExecStart=//p" $unit)
    mapfile -t variables < <(sed -n "s/^Environment=//p" $unit)
    chown -R 61184:61184 /var/lib/skein
    setpriv --reuid=61184 --regid=61184 --clear-groups --no-new-privs env -i "${variables[@]}" SKEIN_PORT=18098 \
      $command --model '"$(basename "$model" .gguf)"' >/tmp/serve.log 2>&1 &
    server=$!
    wait_for 18098 && ask 18098 || { cat /tmp/serve.log; exit 1; }
    kill -TERM $server
    wait $server'
  rm -rf "$root/var/lib/skein"
  inside "dpkg -P skein >/dev/null
    $list >/tmp/after
    diff /tmp/before /tmp/after"
  rm -rf "$root"
  echo "package_check: the .deb installs, answers a chat and is removed without a trace"
}

check_image() {
  rm -rf "$root"
  local environment
  tools/oci_unpack.py "$(ls "$dist"/skein-*-oci.tar)" "$root" >"$root.json"
  environment=$(python3 -c 'import json, shlex, sys; print(*map(shlex.quote, json.load(open(sys.argv[1]))["config"]["Env"]))' "$root.json")
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["config"]["Healthcheck"]["Test"][3])' "$root.json" >"$root/health.sh"
  cp "$model" "$root/var/lib/skein/models/"
  chown 10001:10001 "$root/var/lib/skein/models/"*
  # A container has a network of its own; here a stranger could come in, so that it listens to itself alone.
  inside "$ask
    as_user='setpriv --reuid=10001 --regid=10001 --clear-groups --no-new-privs env -i $environment SKEIN_HOST=127.0.0.1 SKEIN_PORT=18097'
    ! eval \"\$as_user /bin/bash /health.sh\" 2>/dev/null
    eval \"exec \$as_user /usr/bin/skein serve\" >/tmp/serve.log 2>&1 & # exec: what is stopped below is the server, not a shell
    server=\$!
    wait_for 18097 && ask 18097 && eval \"\$as_user /bin/bash /health.sh\" || { cat /tmp/serve.log; exit 1; }
    kill -TERM \$server
    wait \$server"
  rm -rf "$root" "$root.json"
  echo "package_check: the image unpacks, answers a chat as its user, and its health check tells up from down"
}

check_twice() {
  local clone=$PWD/build/package-clone/at/another/path file
  rm -rf build/package-clone
  git clone --quiet --no-hardlinks . "$clone"
  git -C "$clone" checkout --quiet --detach "$(git rev-parse HEAD)"
  for file in deb tarball; do (cd "$clone" && tools/package.sh "$file" >/dev/null); done
  for file in "$clone"/build/dist/*; do
    [ "${file##*/}" = SHA256SUMS ] || cmp "$file" "$dist/${file##*/}" || { echo "package_check: two builds differ; $clone is left to look at" >&2; exit 1; }
  done
  rm -rf build/package-clone
  echo "package_check: two builds of $(git rev-parse --short HEAD), in two folders, gave the same bytes"
}

for part in "${@:-deb image}"; do
  for one in $part; do "check_$one"; done
done
