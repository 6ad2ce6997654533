#!/usr/bin/env bash
# Prints the path of a redis-server: $REDIS_SERVER if that is set, otherwise the one on the PATH, and otherwise Debian's. If Debian's is not
# in the cache, fetches it into the cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

if [ -n "${REDIS_SERVER:-}" ]; then
	command -v "$REDIS_SERVER" ||
		{ echo "\$REDIS_SERVER is $REDIS_SERVER, which is no program: unset it, or set it to a redis-server" >&2; exit 1; }
	exit
fi
command -v redis-server || command -v valkey-server && exit
. ./debian.sh

# The package of the tools contains the server. Fetches the libraries as well, except those that every Debian with OpenSSL has.
fetch() {
	unpack "$(. /etc/os-release && echo "$VERSION_CODENAME")" \
		redis-tools libjemalloc2 liblua5.1-0 liblzf1 libatomic1
	mkdir -p "$work/got/lib"
	find "$work/usr/lib" -name '*.so*' -exec cp -P -t "$work/got/lib" {} +
	cp -L "$work/usr/bin/redis-check-rdb" "$work/got/redis"
	# The program runs as a server only under this name; under its own name it checks files.
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
