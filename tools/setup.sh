#!/usr/bin/env bash
# Installs the Debian packages of the named sections of debian-packages.txt that are missing.
# Says nothing and takes milliseconds when everything is there.
#   tools/setup.sh build test
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=()
for section in "$@"; do
  names=$(awk -v want="[$section]" '/^\[/ { on = ($1 == want) } on && /^[a-z0-9]/ { print $1 }' debian-packages.txt)
  [ -n "$names" ] || { echo "setup: debian-packages.txt has no section [$section]" >&2; exit 2; }
  mapfile -t -O "${#wanted[@]}" wanted <<<"$names"
done

command -v dpkg-query >/dev/null || {
  echo "setup: this is not a Debian system; install the equivalents of: ${wanted[*]}" >&2
  exit 0
}
installed=$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' 2>/dev/null | sed -n 's/^ii *//p')
missing=$(comm -23 <(printf '%s\n' "${wanted[@]}" | sort -u) <(sort -u <<<"$installed"))
[ -n "$missing" ] || exit 0

as_root=(env DEBIAN_FRONTEND=noninteractive)
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "setup: not root and there is no sudo; as root run: apt-get install" $missing >&2
    exit 1
  }
  as_root=(sudo env DEBIAN_FRONTEND=noninteractive)
fi
echo "setup: installing" $missing
install() { "${as_root[@]}" apt-get install -y -qq --no-install-recommends $missing >/dev/null; }
"${as_root[@]}" apt-get update -qq && install || {
  echo "setup: apt-get could not install:" $missing >&2
  echo "setup: check the network and /etc/apt/sources.list, then run make again" >&2
  exit 1
}
