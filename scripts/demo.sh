#!/usr/bin/env bash
# Ten seconds of four processes with fifty goroutines each on a private server of a store, and the verdict. Where no ZooKeeper can
# be had, it is the one in memory.
set -euo pipefail

if [ "$1" != zookeeper ] || scripts/get-zookeeper.sh; then
	go run ./stress -store "$1" -duration 10s
	exit
fi
echo "There is no ZooKeeper to be had here. What follows runs on the one in memory, that of tierlock dev." >&2
dir=$(mktemp -d)
go build -o "$dir/tierlock" ./cmd/tierlock
: >"$dir/out" # grep may come before the server
"$dir/tierlock" dev -port 0 >"$dir/out" &
server=$!
trap 'kill $server; rm -rf "$dir"' EXIT
until addr=$(grep -o '127\.0\.0\.1:[0-9]*' "$dir/out"); do
	kill -0 $server
	sleep 0.1
done
go run ./stress -zk "$addr" -duration 10s
