#!/usr/bin/env bash
# Prints the path of an etcd: $ETCD if that is set, and otherwise the newest version that this repository knows. If that version is not in
# the cache, builds it. The build needs Go, a minute, and the Go module proxy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../internal/test/etcdserver/etcd"

if [ -n "${ETCD:-}" ]; then
	command -v "$ETCD" || { echo "\$ETCD is $ETCD, which is no program: unset it, or set it to an etcd" >&2; exit 1; }
	exit
fi

version=$(sed -n 's|^require go.etcd.io/etcd/server/v3 ||p' go.mod)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tierlock
etcd=$cache/etcd-$version

finish() {
	if [ $? -ne 0 ]; then
		tail -n 20 "$work/log" >&2
		cat >&2 <<-END
			etcd $version cannot be built here; one of these gets you one:
			  apt-get install -y etcd-server
			  brew install etcd
			  set \$ETCD to the program
		END
	fi
	rm -rf "$work"
}

if [ ! -x "$etcd" ]; then
	echo "building etcd $version" >&2
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/build-XXXXXX")
	trap finish EXIT
	GOWORK=off CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$work/etcd" . >"$work/log" 2>&1
	mv "$work/etcd" "$etcd"
fi
echo "$etcd"
