#!/usr/bin/env bash
# Starts each store of compose.yaml as README says, and takes a lock on it by its command. Needs Docker.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
trap 'docker compose down --volumes' EXIT

export TIERLOCK_ZK=127.0.0.1:2181 TIERLOCK_ETCD=127.0.0.1:2379 TIERLOCK_REDIS=127.0.0.1:6379
export TIERLOCK_POSTGRES=postgres://postgres@127.0.0.1:5432/postgres
take() {
	echo "a lock on $1, by ${*:2}" >&2
	docker compose up -d --wait "$1"
	"${@:2}" run -n /compose -- true
}
take zookeeper go run ./cmd/tierlock
take etcd go run ./etcdlock/cmd/tierlock-etcd
docker compose up -d --wait postgres
go run ./pglock/cmd/tierlock-postgres migrate
take postgres go run ./pglock/cmd/tierlock-postgres
take redis go run ./redislock/cmd/tierlock-redis
