#!/usr/bin/env bash
# Runs a command with a PostgreSQL of its own, on a Unix socket in a temporary folder, and with
# SKEIN_TEST_STORE as its URL; SKEIN_TEST_STORE_TCP is the same on a port of this machine. PostgreSQL refuses to run as root, so root starts it as nobody.
#   tests/fleet/with_postgres.sh build/release/tests/server/store/store_test --gtest_filter=...
set -euo pipefail

bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
[ -n "$bin" ] || {
  echo "with_postgres: there is no PostgreSQL; tools/setup.sh fleet installs it" >&2
  [ "${SKEIN_REQUIRE:-}" = all ] && exit 1 || exit 77
}
folder=$(mktemp -d /tmp/skein.postgres.XXXXXX)
as=()
if [ "$(id -u)" -eq 0 ]; then
  chown nobody:nogroup "$folder"
  as=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
fi
stop() {
  [ -z "${pid:-}" ] || { kill -INT "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; }
  rm -rf "$folder"
}
trap stop EXIT
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cd "$folder"
"${as[@]}" "$bin/initdb" -D "$folder/data" -U skein -E UTF8 --no-locale -A trust --no-sync >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
# What is tested is skein's care of its data, not the disk's.
"${as[@]}" "$bin/postgres" -D "$folder/data" -k "$folder" -c listen_addresses=127.0.0.1 -p "$port" -c fsync=off -c shared_buffers=32MB \
  -c max_connections=60 -c log_min_messages=fatal >>"$folder/log" 2>&1 &
pid=$!
for _ in $(seq 200); do
  "$bin/pg_isready" -q -h "$folder" -p "$port" -U skein && break
  kill -0 "$pid" 2>/dev/null || { cat "$folder/log"; exit 1; }
  sleep 0.05
done
cd "$OLDPWD"
export SKEIN_TEST_STORE="postgresql://skein@/postgres?host=$folder&port=$port"
export SKEIN_TEST_STORE_TCP="postgresql://skein@127.0.0.1:$port/postgres?connect_timeout=3"
"$@"
