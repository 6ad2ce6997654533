#!/usr/bin/env bash
# Prints the path of etcd 3.4 of Debian 12, for $ETCD. If it is not in the cache, fetches it into the cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./debian.sh

fetch() {
	unpack bookworm etcd-server
	version=$("$work/usr/bin/etcd" --version)
	[[ $version == *"etcd Version: 3.4."* ]] || { echo "Debian 12 has $version"; exit 1; }
	mv "$work/usr/bin/etcd" "$work/got"
}

cached "etcd 3.4" etcd-3.4
echo "$target"
