#!/usr/bin/env bash
# Starts each store of compose.yaml in the way that README describes, and acquires a lock on it with the command. Needs Docker.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
trap 'docker compose down --volumes' EXIT

take() {
	export TIERLOCK_STORE=$2
	echo "a lock on $1, at $2" >&2
	docker compose up -d --wait "$1"
	[[ "$1" != postgres && "$1" != mysql ]] || go run ./cmd/tierlock migrate
	go run ./cmd/tierlock run -n /compose -- true
}
take zookeeper zk://127.0.0.1:2181
take etcd etcd://127.0.0.1:2379
take postgres postgres://postgres@127.0.0.1:5432/postgres
take mysql mysql://root@127.0.0.1:3306/app
take redis redis://127.0.0.1:6379
