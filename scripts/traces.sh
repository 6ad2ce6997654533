#!/usr/bin/env bash
# Runs twenty seconds of chaos on each store, three stores at a time, and checks the traces. A slow run is no failure, because the part that
# was executed is checked. If no process had a lock for a long time, the machine is the likely cause, so this is no failure either.
set -euo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/stress" ./stress
export dir

# chaos runs the chaos on a store with one kind of lock, and prints the results of the trace and of the verdict.
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
