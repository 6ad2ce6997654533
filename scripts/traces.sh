#!/usr/bin/env bash
# Twenty seconds of chaos on each store, three at a time, whose traces are checked. A run that is slow is no failure: it is judged as far
# as it came, and a lock that nobody had for long is the machine's matter.
set -euo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/stress" ./stress
export dir

# chaos runs it on a store, with a lock of a sort, and repeats of it what the trace and the verdict are.
chaos() {
	local out="$dir/$1" status=0
	timeout -k 30 80 "$dir/stress" -store "$@" -chaos -duration 20s >"$out" 2>"$out.err" || status=$?
	sed -n "s/^trace  */$1: /p" "$out"
	local wrong
	wrong=$(sed -n 's/^FAIL: //p' "$out" | sed 's/; /\n/g' | grep -v 'not acquired' || true)
	case $status in
	0 | 124 | 137) ;; # 124 and 137: its time was over
	*) grep -q '^FAIL: ' "$out" || wrong="no verdict" ;;
	esac
	if [ -n "$wrong" ]; then
		cat "$out" "$out.err" >&2
		return 1
	fi
	grep -q '^trace ' "$out" || echo "$1: left out, as it was too slow"
}
export -f chaos

xargs -P 3 -I {} bash -c 'chaos {}' <<'END'
zookeeper -lock mutex
etcd -lock semaphore -weight 2
postgres -lock semaphore -weight 2
postgres-advisory -lock rw -reads 0.7
mysql -lock semaphore -weight 2
redis -lock semaphore -weight 2
END
