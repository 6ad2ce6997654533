#!/usr/bin/env bash
# Makes sure that this machine has the ip command and permits this user to create network namespaces. If it does, changes nothing.
set -euo pipefail

have_ip() { command -v ip >/dev/null; }
have_namespaces() {
	local new=(--net --mount)
	[ "$(id -u)" -eq 0 ] || new+=(--user --map-root-user)
	unshare "${new[@]}" true 2>/dev/null
}

if ! have_namespaces; then
	echo "no right to make network namespaces here: it takes root, or a kernel that allows user namespaces" >&2
	exit 1
fi
have_ip && exit 0

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)

if command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }; then
	echo "installing iproute2" >&2
	"${as_root[@]}" apt-get update -q >&2
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends iproute2 >&2
	have_ip && exit 0
fi

echo "make partition needs the ip command: apt-get install -y iproute2" >&2
exit 1
