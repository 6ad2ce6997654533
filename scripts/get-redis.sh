#!/usr/bin/env bash
# Prints the path of a redis-server: $REDIS_SERVER if that is set, otherwise one on the PATH, otherwise Debian's, which it
# fetches into the cache if it is not there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

if [ -n "${REDIS_SERVER:-}" ]; then
	command -v "$REDIS_SERVER" ||
		{ echo "\$REDIS_SERVER is $REDIS_SERVER, which is no program: unset it, or set it to a redis-server" >&2; exit 1; }
	exit
fi
command -v redis-server || command -v valkey-server && exit
. ./debian.sh

# The server is in the package of its tools. Libraries come along, but for those that every Debian with OpenSSL has.
fetch() {
	unpack "$(. /etc/os-release && echo "$VERSION_CODENAME")" \
		redis-tools libjemalloc2 liblua5.1-0 liblzf1 libatomic1
	mkdir -p "$work/got/lib"
	find "$work/usr/lib" -name '*.so*' -exec cp -P -t "$work/got/lib" {} +
	cp -L "$work/usr/bin/redis-check-rdb" "$work/got/redis"
	# The name says to be a server, not a check.
	cat >"$work/got/redis-server" <<-'END'
		#!/bin/bash
		here=$(dirname "$0")
		export LD_LIBRARY_PATH=$here/lib
		exec -a redis-server "$here/redis" "$@"
	END
	chmod +x "$work/got/redis-server"
	"$work/got/redis-server" --version
}

cached Redis redis
echo "$target/redis-server"
