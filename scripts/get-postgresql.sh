#!/usr/bin/env bash
# Makes sure that a PostgreSQL is on this machine, and prints the directory whose bin contains it. If there is none, unpacks Debian's
# packages into the cache. Nothing is installed, and no daemon starts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# The server runs as another user than root, so that user needs access to root's cache.
[ "$(id -u)" -ne 0 ] || export XDG_CACHE_HOME=/var/cache
. ./debian.sh

if [ -n "${POSTGRESQL_HOME:-}" ]; then
	[ -x "$POSTGRESQL_HOME/bin/initdb" ] || { echo "\$POSTGRESQL_HOME is $POSTGRESQL_HOME, which has no bin/initdb" >&2; exit 1; }
	echo "$POSTGRESQL_HOME"
	exit
fi

# Prints the directory of the newest PostgreSQL below $1, in the layout of Debian.
newest() { { compgen -G "$1/usr/lib/postgresql/*/bin/initdb" || true; } | sort -V | tail -n 1 | sed 's|/bin/initdb$||'; }

fetch() {
	suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
	unpack "$suite" postgresql # this package says which version belongs to the release
	server=$(dpkg-deb -f "$work"/postgresql_*.deb Depends | grep -o 'postgresql-[0-9]*')
	# These are the packages that the machine lacks. LLVM is left out, because it only compiles queries.
	lacking=$(private_apt -o Dir::State::status="${DPKG_STATUS:-/var/lib/dpkg/status}" install --print-uris --no-install-recommends "$server" |
		sed -n "s|^'[^']*' \([^_]*\)_.*|\1|p" | grep -v -e llvm -e '^locales' -e '^ssl-cert')
	unpack "$suite" $lacking
	chmod -R go+rX "$work"
	home=$(newest "$work")
	LD_LIBRARY_PATH=$(compgen -G "$work/usr/lib/*-linux-gnu*" | paste -sd:) "$home/bin/postgres" --version
	mkdir "$work/got"
	mv "$work/usr" "$work/got"
}

home=$(newest "")
if [ -z "$home" ] && initdb=$(command -v initdb); then home=$(dirname "$(dirname "$initdb")"); fi
if [ -z "$home" ]; then
	cached PostgreSQL postgresql
	home=$(newest "$target")
fi
echo "$home"
