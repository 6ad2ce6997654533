#!/usr/bin/env bash
# Makes sure that Python 3 and Node are on this machine, for the tests of the clients in clients/. If they are, changes nothing.
set -euo pipefail

have_all() { command -v python3 >/dev/null && command -v node >/dev/null; }
have_all && exit 0

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)

if command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }; then
	packages=()
	command -v python3 >/dev/null || packages+=(python3)
	command -v node >/dev/null || packages+=(nodejs)
	echo "installing ${packages[*]}" >&2
	"${as_root[@]}" apt-get update -q >&2
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${packages[@]}" >&2
	have_all && exit 0
fi

echo "the tests of the clients need Python 3.8 and Node 18, or later: apt-get install -y python3 nodejs" >&2
exit 1
