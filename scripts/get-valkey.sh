#!/usr/bin/env bash
# Prints the path of a Valkey server, Debian 13's, for $REDIS_SERVER; fetches it into the cache if it is not there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./debian.sh

# The server is in the package of its tools. It comes with all its libraries and their loader: this machine's may be older.
fetch() {
	unpack trixie valkey-tools libc6 libgcc-s1 libstdc++6 libatomic1 libjemalloc2 liblua5.1-0 lua-bitop lua-cjson liblzf1 \
		libssl3t64 zlib1g libsystemd0 libcap2 libgcrypt20 libgpg-error0 liblz4-1 liblzma5 libzstd1
	mkdir -p "$work/got/lib"
	find "$work/usr/lib" -name '*.so*' -exec cp -P -t "$work/got/lib" {} +
	cp "$work/usr/bin/valkey-check-rdb" "$work/got/valkey"
	# The name says to be a server, not a check.
	cat >"$work/got/valkey-server" <<-'END'
		#!/bin/bash
		lib=$(dirname "$0")/lib
		exec "$lib"/ld-linux*.so.? --argv0 valkey-server --library-path "$lib" "$lib/../valkey" "$@"
	END
	chmod +x "$work/got/valkey-server"
	version=$("$work/got/valkey-server" --version)
	[[ $version == *" v=8."* ]] || { echo "Debian 13 has $version"; exit 1; }
}

cached Valkey valkey-8
echo "$target/valkey-server"
