#!/usr/bin/env bash
# What docs/FLEET.md promises, at full size: one line with its figure for each case. `make fleet-tests` builds and calls it.
#   tests/fleet/full.sh build/skein [store away limits router clients traces deploy sim]
set -euo pipefail
binary=$1
shift
[ $# -gt 0 ] || set -- store away limits router clients traces deploy sim
here=$(dirname "$0")
for name in "$@"; do
  case $name in
    store | away) python3 -B "$here/fleet_${name}_test.py" "$binary" --full ;;
    limits | router) "$here/with_postgres.sh" python3 -B "$here/fleet_${name}_test.py" "$binary" --full ;;
    clients)
      for by in "" --vllm-router; do "$here/with_postgres.sh" python3 -B "$here/fleet_clients_test.py" "$binary" $by; done
      ;;
    traces) "$here/with_postgres.sh" python3 -B "$here/fleet_${name}_test.py" "$binary" ;;
    deploy) "$here/with_postgres.sh" python3 -B "$here/deploy_test.py" "$binary" ;;
    sim) time "$binary" bench sim --nodes 64 --requests 24000 --rate 90 --step-tokens 2048 --token-ms 0.125 --batch-block-pool-size 31250 ;;
    *) echo "full: there is no case $name" >&2; exit 2 ;;
  esac
done
