#!/usr/bin/env bash
# Prints a directory for $PYTHONPATH with kazoo and redis-py of Debian 13, for make bench-agent. If it is not in the cache, fetches it into
# the cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./debian.sh

fetch() {
	unpack trixie python3-kazoo python3-redis python3-async-timeout
	mv "$work/usr/lib/python3/dist-packages" "$work/got"
	PYTHONPATH=$work/got python3 -c 'import kazoo.client, redis.lock'
}

cached "kazoo and redis-py" python-locks
echo "$target"
