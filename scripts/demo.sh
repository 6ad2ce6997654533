#!/usr/bin/env bash
# Runs four processes with fifty goroutines each for ten seconds on a private server of a store, and prints the verdict. If no ZooKeeper is
# available, uses the ZooKeeper in memory.
set -euo pipefail

if [ "$1" != zookeeper ] || scripts/get-zookeeper.sh; then
	go run ./stress -store "$1" -duration 10s
	exit
fi
echo "There is no ZooKeeper to be had here. What follows runs on the one in memory, that of tierlock dev." >&2
dir=$(mktemp -d)
go build -o "$dir/tierlock" ./cmd/tierlock
: >"$dir/out" # created first, because grep may run before the server does
"$dir/tierlock" dev -port 0 >"$dir/out" &
server=$!
trap 'kill $server; rm -rf "$dir"' EXIT
until addr=$(grep -o '127\.0\.0\.1:[0-9]*' "$dir/out"); do
	kill -0 $server
	sleep 0.1
done
go run ./stress -zk "$addr" -duration 10s
