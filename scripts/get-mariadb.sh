#!/usr/bin/env bash
# Makes sure that a MariaDB is on this machine, and prints the directory that contains usr/sbin/mariadbd. If there is none, unpacks Debian's
# packages into the cache. Nothing is installed, and no daemon starts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# The server runs as another user than root, so that user needs access to root's cache.
[ "$(id -u)" -ne 0 ] || export XDG_CACHE_HOME=/var/cache
. ./debian.sh

if [ -n "${MARIADB_HOME:-}" ]; then
	[ -x "$MARIADB_HOME/usr/sbin/mariadbd" ] || { echo "\$MARIADB_HOME is $MARIADB_HOME, which has no usr/sbin/mariadbd" >&2; exit 1; }
	echo "$MARIADB_HOME"
	exit
fi
if [ -x /usr/sbin/mariadbd ]; then
	echo /
	exit
fi

fetch() {
	suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
	unpack "$suite" mariadb-server # this package says which libraries it needs
	lacking=$(private_apt -o Dir::State::status="${DPKG_STATUS:-/var/lib/dpkg/status}" install --print-uris --no-install-recommends mariadb-server |
		sed -n "s|^'[^']*' \([^_]*\)_.*|\1|p" | grep -e '^mariadb' -e '^lib' | grep -v -e perl -e '^libcgi' -e '^libhtml')
	unpack "$suite" $lacking
	chmod -R go+rX "$work"
	LD_LIBRARY_PATH=$(compgen -G "$work/usr/lib/*-linux-gnu*" | paste -sd:) "$work/usr/sbin/mariadbd" --version
	mkdir "$work/got"
	mv "$work/usr" "$work/got"
}

cached MariaDB mariadb
echo "$target"
