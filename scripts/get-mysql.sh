#!/usr/bin/env bash
# Prints the path of MySQL of Debian unstable, for $MARIADB_HOME. If it is not in the cache, fetches it into the cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# The server runs as another user than root, so that user needs access to root's cache.
[ "$(id -u)" -ne 0 ] || export XDG_CACHE_HOME=/var/cache
. ./debian.sh

# MySQL gets all its libraries and their loader, because those of this machine may be older.
fetch() {
	unpack sid mysql-server-core mysql-client-core # these packages say which libraries they need
	needed=$(private_apt install --print-uris --no-install-recommends mysql-server-core mysql-client-core |
		sed -n "s|^'[^']*' \([^_]*\)_.*|\1|p" | grep -e '^lib' -e '^zlib' | grep -v -e perl -e '^libc-gconv')
	unpack sid $needed
	mkdir -p "$work/got/usr"/{sbin,bin,lib,share}
	find "$work/usr/lib" -name '*.so*' -not -path '*/ossl-modules/*' -exec cp -P -t "$work/got/usr/lib" {} +
	cp -r "$work"/usr/share/mysql* "$work/got/usr/share"
	for program in sbin/mysqld bin/mysql; do
		cp "$work/usr/$program" "$work/got/usr/lib/${program#*/}"
		cat >"$work/got/usr/$program" <<-END
			#!/bin/bash
			lib=\$(dirname "\$0")/../lib
			exec "\$lib"/ld-linux*.so.? --argv0 "\$0" --library-path "\$lib" "\$lib/${program#*/}" "\$@"
		END
		chmod +x "$work/got/usr/$program"
	done
	chmod -R go+rX "$work/got"
	"$work/got/usr/sbin/mysqld" --version
}

cached MySQL mysql
echo "$target"
