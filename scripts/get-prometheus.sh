#!/usr/bin/env bash
# Makes sure that a Prometheus is on this machine, for the tests of contrib/tierprom. If there is one, changes nothing.
set -euo pipefail

command -v "${PROMETHEUS:-prometheus}" >/dev/null && exit 0

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
echo "installing prometheus" >&2
"${as_root[@]}" apt-get update -q >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends prometheus >&2
