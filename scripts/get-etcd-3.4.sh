#!/usr/bin/env bash
# Prints the path of an etcd 3.4, Debian 12's, for $ETCD; fetches it into the cache if it is not there.
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
