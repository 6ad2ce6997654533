.PHONY: library demo explore explore-all serve chaos trace traces partition slots bench-all bench-zookeeper bench-etcd bench-postgres bench-mysql bench-redis etcd postgres mysql redis test compat sim mutants interop lint vuln fuzz verdicts tidy-check cross wine server etcd-server redis-server postgresql-server mariadb-server prometheus

SHELL := bash

# What one clone has built serves the next one: without the paths of the sources in it, Go's cache knows it again.
export GOFLAGS := -trimpath $(GOFLAGS)

# The race detector needs a C compiler, which Go knows of when it enables cgo.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

# All packages of the modules in go.work, and those of the locks and of stress whose tests start servers.
PACKAGES = $(or $(shell go list -m -f '{{.Dir}}/...'),$(error go.work has no modules))
STARTERS = $(or $(shell go list -test -f '{{$$p := .ForTest}}{{if $$p}}{{range .Deps}}{{if eq . "github.com/tierlock/tierlock/internal/test/child"}}{{$$p}} {{end}}{{end}}{{end}}' \
	./... ./cmd/tierlock $(addprefix ./cmd/tierlock/internal/,command etcd mysql redis zkinspect) ./etcdlock/... ./mysqllock/... ./redislock/... ./stress/...),$(error no test starts a server))

GOLANGCI_LINT := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOTESTSUM := go run gotest.tools/gotestsum@v1.13.0
GOVULNCHECK := go run golang.org/x/vuln/cmd/govulncheck@v1.9.0
ACTIONLINT := go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

# Ten seconds on a private server of the store, and the verdict.
STORE ?= zookeeper
SERVER.zookeeper         := server
SERVER.etcd              := etcd-server
SERVER.postgres          := postgresql-server
SERVER.postgres-advisory := postgresql-server
SERVER.mysql             := mariadb-server
SERVER.redis             := redis-server
demo: $(filter-out server,$(or $(SERVER.$(STORE)),$(error STORE is one of zookeeper, etcd, postgres, postgres-advisory, mysql, redis)))
	@scripts/demo.sh $(STORE)

# A server of STORE on its usual port of 127.0.0.1 until it is interrupted, to try things with.
serve: $(SERVER.$(STORE))
	@go run ./internal/test/serve $(STORE)

# A minute of kill -9, stops and cuts on one private ZooKeeper, and on an ensemble one for each sort of lock.
chaos: server
	go run ./stress -chaos -duration 60s
	go run ./stress -chaos -duration 60s -ensemble 3
	go run ./stress -chaos -duration 60s -ensemble 3 -lock rw
	go run ./stress -chaos -duration 60s -ensemble 3 -lock semaphore -weight 2

# Twenty seconds of the same on STORE, whose trace is kept.
trace: $(SERVER.$(STORE))
	go run ./stress -store $(STORE) -chaos -duration 20s -trace $$(mktemp -d)

# The same on all of them, three at a time, in at most two minutes.
traces: server etcd-server postgresql-server mariadb-server redis-server
	@scripts/traces.sh

# Servers of an ensemble cut off from one another, in network namespaces, in about six minutes: the holder has to know
# of its loss before another process acquires.
TRIALS ?= 20
partition: server
	@scripts/get-iproute2.sh
	go run ./stress/partition -trials $(TRIALS)

# Slots of one second in three processes on each store, three stores at a time, for DURATION each: processes die and stop, and a file that
# only flock protects shows what has run. About five minutes.
DURATION ?= 2m
slots: server etcd-server postgresql-server mariadb-server redis-server
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && go build -o "$$dir/slots" ./stress/slots && \
		printf '%s\n' zookeeper etcd postgres postgres-advisory mysql redis | xargs -P 3 -I {} "$$dir/slots" -store {} -duration $(DURATION)

# Tierlock beside the lock that each store usually has, five rounds of all works, on a machine that has nothing else to do: about ten
# minutes on ZooKeeper, eleven on PostgreSQL with both of its tiers, eight on etcd and on Redis; MySQL was not timed yet. Each writes its tables of
# docs/measured.md. A failure on one store does not keep bench-all from the others.
bench-all:
	@failed=; for store in zookeeper etcd postgres mysql redis; do $(MAKE) bench-$$store || failed=yes; done; test -z "$$failed"

BENCH = go run -buildvcs=true ./stress -bench docs -store
bench-zookeeper: server
	$(BENCH) zookeeper

bench-etcd: etcd-server
	$(BENCH) etcd

bench-postgres: postgresql-server
	$(BENCH) postgres

bench-mysql: mariadb-server
	$(BENCH) mysql

bench-redis: redis-server
	$(BENCH) redis

# All that is etcd's, in less than four minutes: its tests and those of every second tier, faults on an ensemble for each
# sort of lock, and servers that stop, die, or are cut off: who knows first?
etcd: etcd-server
	TIERLOCK_REQUIRE_SERVER=1 go test $(RACE) -shuffle=on -timeout 5m ./etcdlock/... ./internal/test/etcdserver/...
	for lock in mutex rw; do go run ./stress -store etcd -chaos -ensemble 3 -duration 15s -lock $$lock || exit 1; done
	go run ./stress/partition -store etcd -trials 2 -labs 3

# All that is PostgreSQL's, and all that is Redis's, as for etcd. Here it is a single server that stops or dies, or a holder
# that stops, or is not heard.
postgres: postgresql-server
	TIERLOCK_REQUIRE_SERVER=1 go test $(RACE) -shuffle=on -timeout 5m ./pglock/... ./internal/test/pgserver/...
	for lock in mutex rw semaphore; do go run ./stress -store postgres -chaos -ensemble 3 -duration 15s -lock $$lock || exit 1; done
	for lock in mutex rw; do go run ./stress -store postgres-advisory -chaos -ensemble 3 -duration 15s -lock $$lock || exit 1; done
	go run ./stress/partition -store postgres -trials 2 -labs 3
	go run ./stress/partition -store postgres-advisory -trials 2 -labs 3

# The same for MySQL and MariaDB, on a MariaDB.
mysql: mariadb-server
	TIERLOCK_REQUIRE_SERVER=1 go test $(RACE) -shuffle=on -timeout 5m ./mysqllock/... ./internal/test/mysqlserver/...
	for lock in mutex rw semaphore; do go run ./stress -store mysql -chaos -duration 15s -lock $$lock || exit 1; done
	go run ./stress/partition -store mysql -trials 2 -labs 3

redis: redis-server
	TIERLOCK_REQUIRE_SERVER=1 go test $(RACE) -shuffle=on -timeout 5m ./redislock/... ./internal/test/redisserver/...
	for lock in mutex rw; do go run ./stress -store redis -chaos -ensemble 3 -duration 15s -lock $$lock || exit 1; done
	go run ./stress/partition -store redis -trials 2 -labs 3

# Everything, on real servers; fails where it cannot get one. Searches that take one step after another come first: the race detector, which
# makes them take six times as long, has nothing to find in them. Most other tests wait for a server, or for a lease to end: so there are more
# of them at a time than cores, and packages that take long begin first. No debugger looks at the binaries. At the end come the twenty tests
# that took longest.
SEARCHES = ^Test(Scopes|ReducedSearchFindsAllOutcomes|IndependentStepsCommute|JudgesFind|LongSchedulesAreReduced|What.*HaveDoneIsFound)$$
LONGEST = ./pglock ./mysqllock ./redislock ./internal/zknode ./tier ./stress ./etcdlock ./internal/test/explore ./contrib/tierprom ./stress/internal/trace \
	./stress/capacity ./stress/slots ./zklock/zktest ./internal/test/interop ./internal/test/everystore ./internal/queue ./stress/internal/bench
test: server etcd-server redis-server postgresql-server mariadb-server prometheus
	@test -z "$$(gofmt -l .)" || { gofmt -d .; exit 1; }
	go vet $(PACKAGES)
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && status=0 && export TIERLOCK_REQUIRE_SERVER=1 TIERLOCK_COMMAND="$$dir/tierlock" && \
		go build -ldflags=-w -o "$$dir/tierlock" ./cmd/tierlock && \
		run() { $(GOTESTSUM) --format pkgname --hide-summary skipped --jsonfile "$$dir/$$1.json" -- \
			-ldflags=-w -shuffle=on -timeout 20m -p 4 -parallel 8 "$${@:2}" || status=$$?; } && \
		run searches -run '$(SEARCHES)' ./internal/test/explore ./stress/internal/trace && \
		run others $(RACE) -skip '$(SEARCHES)' $(LONGEST) $(PACKAGES) && \
		cat "$$dir"/*.json | $(GOTESTSUM) tool slowest --num 20 && exit $$status

# What starts servers again on ZooKeeper 3.9, etcd 3.4, Valkey 8 and MySQL, where Debian 13, 12 and unstable can be reached. It is the
# servers that are other: without the race detector.
compat: server
	@home=$$(scripts/get-zookeeper-3.9.sh) && etcd=$$(scripts/get-etcd-3.4.sh) && valkey=$$(scripts/get-valkey.sh) && \
		mysql=$$(scripts/get-mysql.sh) && export ZOOKEEPER_HOME=$$home ETCD=$$etcd REDIS_SERVER=$$valkey MARIADB_HOME=$$mysql && \
		env | grep -E "^(ZOOKEEPER_HOME|ETCD|REDIS_SERVER|MARIADB_HOME)=" && \
		TIERLOCK_REQUIRE_SERVER=1 go test -shuffle=on -timeout 15m $(STARTERS)

# What is on top of ZooKeeper's client library, with the newest commit of that, in a copy of what is committed.
library: server
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && git archive HEAD | tar -x -C "$$copy" && cd "$$copy" && \
		go get github.com/go-zookeeper/zk@master && go list -m github.com/go-zookeeper/zk && \
		TIERLOCK_REQUIRE_SERVER=1 go test $(RACE) -shuffle=on -timeout 30m -skip TestTheTestedLibraryIsThatOfTheModule \
			./zklock/... ./internal/zknode/... ./tier ./internal/test/explore

# The peers of tierlock under the same faults, on real servers, into docs/verdicts.md: four trials of each cell in at most twenty minutes,
# and thirty with FULL=1, which takes the night. Its module is outside of go.work: client-go brings all types of Kubernetes. Where Curator
# or kazoo cannot be had, the document says that they are left out.
verdicts: server etcd-server redis-server postgresql-server
	-@scripts/get-interop.sh
	cd stress/verdicts && GOWORK=off go run . $(if $(FULL),-trials 30) -to ../../docs/verdicts.md

# Long random schedules of the explorer, 10,200 slots of package slots with random faults, and the promises over a connection made
# elsewhere, in which the race detector stops at the client library.
SEEDS ?= 500
sim:
	@set -o pipefail; go test -count=1 -timeout 5h -v ./internal/test/explore -run TestRandomSchedules -seeds $(SEEDS) | \
		grep -v -e '^ *---' -e '^===' -e '^PASS' -e '^ok'
	@go test -count=1 ./slots -run TestRandomFaults -seeds 17
	@go test -count=1 ./internal/zknode -run TestTierOverAConnectionMadeElsewhere

# Orders of messages with one fault at a small scope, all of them or up to a bound; explore-all goes on for hours. Executions allocate much and keep nothing, so
# garbage is collected less often.
EXPLORE = @set -o pipefail; GOGC=400 go test -count=1 -timeout 8h -v ./internal/test/explore -run TestScopes -all $(1) | \
	grep -v -e '^ *---' -e '^===' -e '^PASS' -e '^ok'
explore:
	$(call EXPLORE)
explore-all:
	$(call EXPLORE,-night)

# Takes out one guard at a time; the tests have to notice.
N ?= 200
mutants:
	@go run ./internal/test/mutants -n $(N)

# Curator, kazoo and zk.Lock on the same paths.
interop: server
	@scripts/get-interop.sh
	TIERLOCK_REQUIRE_SERVER=1 TIERLOCK_REQUIRE_INTEROP=1 go test $(RACE) -v -count=1 -parallel 5 ./internal/test/interop -duration 20s

# The linters are built from the module proxy in these versions, in Go's cache; what is on the PATH does not count.
lint:
	$(GOLANGCI_LINT) run $(PACKAGES)
	$(ACTIONLINT) -shellcheck= -pyflakes=

# Known vulnerabilities that the code can reach, by the database at vuln.go.dev.
vuln:
	@set -e; for dir in $$(go list -m -f '{{.Dir}}'); do (cd "$$dir" && $(GOVULNCHECK) ./...); done

# Each fuzz test for FUZZ.
FUZZ ?= 1m
fuzz:
	@set -e; grep -l '^func Fuzz' $$(git ls-files '*_test.go') | while read -r file; do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z]*\)(.*/\1/p' "$$file"); do \
			go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZ) "./$$(dirname "$$file")"; done; done

# Everything builds, and passes vet, on the systems that users have. What is pure also runs with 32 bits, where Linux can.
TARGETS ?= linux/amd64 linux/arm64 linux/386 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
PURE := ./mutexbool ./internal/second ./internal/lease ./internal/queue ./internal/wire ./internal/zknode/internal/link ./tier
cross: export CGO_ENABLED = 0
cross:
	@for target in $(TARGETS); do echo "go build and go vet for $$target"; export GOOS=$${target%/*} GOARCH=$${target#*/}; \
		go build $(PACKAGES) && go vet $(PACKAGES) || exit 1; done
	@[ "$$(go env GOHOSTOS GOHOSTARCH | paste -sd/)" != linux/amd64 ] || GOARCH=386 go test $(PURE)

# What the command does on Windows, on wine: all but Ctrl-C and Ctrl-Break, of which wine 8 does not tell all that are to hear of them.
wine: export GOOS = windows
wine: export GOARCH = amd64
wine: export CGO_ENABLED = 0
wine:
	@wine=$$(GOOS= GOARCH= scripts/get-wine.sh) && dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
		go build -o "$$dir/tierlock.exe" ./cmd/tierlock && \
		TIERLOCK_COMMAND="Z:$$dir/tierlock.exe" go test -count=1 -timeout 3m -exec "$$wine" ./cmd/tierlock ./cmd/tierlock/internal/command

# The modules of go.work, the one that builds an etcd, and the one with client-go.
tidy-check:
	@for dir in $$(go list -m -f '{{.Dir}}') internal/test/etcdserver/etcd stress/verdicts; do \
		echo "go mod tidy -diff in $$dir"; (cd $$dir && GOWORK=off go mod tidy -diff) || exit 1; done

server:
	@scripts/get-zookeeper.sh

etcd-server:
	@scripts/get-etcd.sh

redis-server:
	@scripts/get-redis.sh

postgresql-server:
	@scripts/get-postgresql.sh
	@scripts/get-pgbouncer.sh

mariadb-server:
	@scripts/get-mariadb.sh

prometheus:
	@scripts/get-prometheus.sh
