#!/usr/bin/env bash
# Prints the path of a pgbouncer: the one on the PATH, and otherwise Debian's. If Debian's is not in the cache, fetches it into the cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# The server runs as another user than root, so that user needs access to root's cache.
[ "$(id -u)" -ne 0 ] || export XDG_CACHE_HOME=/var/cache
PATH=$PATH:/usr/sbin
command -v pgbouncer && exit
. ./debian.sh

# Fetches its libraries as well, except those that every Debian with OpenSSL has.
fetch() {
	suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
	unpack "$suite" pgbouncer
	unpack "$suite" $(dpkg-deb -f "$work"/pgbouncer_*.deb Depends | grep -o -e 'libc-\?ares[^ ]*' -e 'libevent[^ ]*')
	mkdir -p "$work/got/lib"
	find "$work/usr/lib" -name '*.so*' -exec cp -P -t "$work/got/lib" {} +
	cp "$work/usr/sbin/pgbouncer" "$work/got/program"
	cat >"$work/got/pgbouncer" <<-'END'
		#!/bin/bash
		here=$(dirname "$0")
		export LD_LIBRARY_PATH=$here/lib
		exec "$here/program" "$@"
	END
	chmod -R go+rX "$work"
	chmod +x "$work/got/pgbouncer"
	"$work/got/pgbouncer" --version
}

cached PgBouncer pgbouncer
echo "$target/pgbouncer"
