#!/usr/bin/env bash
# Prints the path of the Valkey server of Debian 13, for $REDIS_SERVER. If it is not in the cache, fetches it into the cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./debian.sh

# The package of the tools contains the server. It gets all its libraries and their loader, because those of this machine may be older.
fetch() {
	unpack trixie valkey-tools libc6 libgcc-s1 libstdc++6 libatomic1 libjemalloc2 liblua5.1-0 lua-bitop lua-cjson liblzf1 \
		libssl3t64 zlib1g libsystemd0 libcap2 libgcrypt20 libgpg-error0 liblz4-1 liblzma5 libzstd1
	mkdir -p "$work/got/lib"
	find "$work/usr/lib" -name '*.so*' -exec cp -P -t "$work/got/lib" {} +
	cp "$work/usr/bin/valkey-check-rdb" "$work/got/valkey"
	# The program runs as a server only under this name; under its own name it checks files.
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
