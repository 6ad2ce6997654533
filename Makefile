.PHONY: library demo explore explore-all serve chaos trace traces partition slots agents bench-all bench-zookeeper bench-etcd bench-postgres bench-mysql bench-redis bench-agent etcd postgres mysql redis test compat sim mutants interop lint vuln fuzz verdicts manifest tidy-check cross wine server etcd-server redis-server postgresql-server mariadb-server prometheus clients

SHELL := bash

# With -trimpath, built packages do not contain the paths of the sources. Another clone therefore finds them in the build cache.
export GOFLAGS := -trimpath $(GOFLAGS)

# The race detector needs a C compiler. If Go finds none, it disables cgo.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

# PACKAGES are all packages of the modules in go.work. STARTERS are those of the locks and of stress whose tests start servers.
PACKAGES = $(or $(shell go list -m -f '{{.Dir}}/...'),$(error go.work has no modules))
STARTERS = $(or $(shell go list -test -f '{{$$p := .ForTest}}{{if $$p}}{{range .Deps}}{{if eq . "github.com/tierlock/tierlock/internal/test/child"}}{{$$p}} {{end}}{{end}}{{end}}' \
	./... ./cmd/tierlock $(addprefix ./cmd/tierlock/internal/,command etcd mysql redis zkinspect) ./etcdlock/... ./mysqllock/... ./redislock/... ./stress/...),$(error no test starts a server))

GOLANGCI_LINT := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOTESTSUM := go run gotest.tools/gotestsum@v1.13.0
GOVULNCHECK := go run golang.org/x/vuln/cmd/govulncheck@v1.9.0
ACTIONLINT := go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

# demo runs ten seconds of load on a private server of STORE, and prints the verdict.
STORE ?= zookeeper
SERVER.zookeeper         := server
SERVER.etcd              := etcd-server
SERVER.postgres          := postgresql-server
SERVER.postgres-advisory := postgresql-server
SERVER.mysql             := mariadb-server
SERVER.redis             := redis-server
demo: $(filter-out server,$(or $(SERVER.$(STORE)),$(error STORE is one of zookeeper, etcd, postgres, postgres-advisory, mysql, redis)))
	@scripts/demo.sh $(STORE)

# serve runs a server of STORE on its usual port of 127.0.0.1, to try things out, until it is interrupted.
serve: $(SERVER.$(STORE))
	@go run ./internal/test/serve $(STORE)

# chaos runs a minute of kill -9, pauses and cuts: on a single private ZooKeeper, and on an ensemble for each sort of lock.
chaos: server
	go run ./stress -chaos -duration 60s
	go run ./stress -chaos -duration 60s -ensemble 3
	go run ./stress -chaos -duration 60s -ensemble 3 -lock rw
	go run ./stress -chaos -duration 60s -ensemble 3 -lock semaphore -weight 2

# trace runs twenty seconds of chaos on STORE, and keeps the trace.
trace: $(SERVER.$(STORE))
	go run ./stress -store $(STORE) -chaos -duration 20s -trace $$(mktemp -d)

# traces runs chaos on all stores, three at a time, and checks the traces. It takes at most two minutes.
traces: server etcd-server postgresql-server mariadb-server redis-server
	@scripts/traces.sh

# partition cuts the servers of an ensemble off from one another, in network namespaces. A holder has to know of its loss before another
# process acquires the lock. It takes about six minutes.
TRIALS ?= 20
partition: server
	@scripts/get-iproute2.sh
	go run ./stress/partition -trials $(TRIALS)

# slots runs slots of one second in three processes on each store, for DURATION each. Processes are killed and stopped, and a file that
# only flock protects records which slots have run. With three stores at a time, it takes about five minutes.
DURATION ?= 2m
slots: server etcd-server postgresql-server mariadb-server redis-server
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && go build -o "$$dir/slots" ./stress/slots && \
		printf '%s\n' zookeeper etcd postgres postgres-advisory mysql redis | xargs -P 3 -I {} "$$dir/slots" -store {} -duration $(DURATION)

# agents runs three agents with six clients each on each store, one store after the other, for DURATION each: agents and clients die and stop, and file
# locks of the kernel show which sections overlap. The clients are in Go, Python and Node. About twelve minutes.
agents: server etcd-server postgresql-server mariadb-server redis-server clients
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && go build -o "$$dir/agents" ./stress/agents && \
		go build -o "$$dir/tierlock" ./cmd/tierlock && export TIERLOCK_COMMAND="$$dir/tierlock" && \
		for store in zookeeper etcd postgres mysql redis; do "$$dir/agents" -store $$store -for $(DURATION) || exit 1; done

# bench-all compares tierlock with the lock that users of each store usually take, in five rounds of all workloads. The machine must have
# nothing else to do. It takes about ten minutes on ZooKeeper, eleven on PostgreSQL with both kinds of locks, and eight on etcd, on
# MySQL and on Redis. Each store has its tables in docs/measured.md. After a failure on one store, bench-all goes on with the
# others.
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

# bench-agent compares the Python client of the agent with the locks of kazoo and redis-py, in five rounds. The machine must have nothing
# else to do. It takes about seven minutes, and prints its tables for docs/measured.md.
bench-agent: server redis-server
	@packages=$$(scripts/get-python-locks.sh) && PYTHONPATH=$$packages python3 stress/agents/compare/compare.py

# etcd runs all tests for etcd: the packages of etcd, chaos on an ensemble for each sort of lock, and faults that stop, kill or cut off
# servers. It takes less than four minutes.
etcd: etcd-server
	TIERLOCK_REQUIRE_SERVER=1 go test $(RACE) -shuffle=on -timeout 5m ./etcdlock/... ./internal/test/etcdserver/...
	for lock in mutex rw; do go run ./stress -store etcd -chaos -ensemble 3 -duration 15s -lock $$lock || exit 1; done
	go run ./stress/partition -store etcd -trials 2 -labs 3

# postgres and redis do the same for PostgreSQL and Redis. There the last part has a single server that stops or dies, or a holder that is
# stopped or cut off.
postgres: postgresql-server
	TIERLOCK_REQUIRE_SERVER=1 go test $(RACE) -shuffle=on -timeout 5m ./pglock/... ./internal/test/pgserver/...
	for lock in mutex rw semaphore; do go run ./stress -store postgres -chaos -ensemble 3 -duration 15s -lock $$lock || exit 1; done
	for lock in mutex rw; do go run ./stress -store postgres-advisory -chaos -ensemble 3 -duration 15s -lock $$lock || exit 1; done
	go run ./stress/partition -store postgres -trials 2 -labs 3
	go run ./stress/partition -store postgres-advisory -trials 2 -labs 3

# mysql does the same on a MariaDB server.
mysql: mariadb-server
	TIERLOCK_REQUIRE_SERVER=1 go test $(RACE) -shuffle=on -timeout 5m ./mysqllock/... ./internal/test/mysqlserver/...
	for lock in mutex rw semaphore; do go run ./stress -store mysql -chaos -duration 15s -lock $$lock || exit 1; done
	go run ./stress/partition -store mysql -trials 2 -labs 3

redis: redis-server
	TIERLOCK_REQUIRE_SERVER=1 go test $(RACE) -shuffle=on -timeout 5m ./redislock/... ./internal/test/redisserver/...
	for lock in mutex rw; do go run ./stress -store redis -chaos -ensemble 3 -duration 15s -lock $$lock || exit 1; done
	go run ./stress/partition -store redis -trials 2 -labs 3

# test runs everything on real servers, and fails if a server is not available. The searches run first and without the race detector, which
# would find nothing in them and makes them six times as slow. Most other tests wait for a server or for the end of a lease. Therefore more
# tests run at a time than there are cores, and packages that take long start first. The binaries contain no information for debuggers. At
# the end, the twenty slowest tests are listed.
SEARCHES = ^Test(Scopes|ReducedSearchFindsAllOutcomes|IndependentStepsCommute|JudgesFind|LongSchedulesAreReduced|What.*HaveDoneIsFound)$$
LONGEST = ./pglock ./mysqllock ./redislock ./internal/zknode ./tier ./stress ./etcdlock ./internal/test/explore ./contrib/tierprom ./stress/internal/trace \
	./stress/capacity ./stress/slots ./stress/agents ./zklock/zktest ./internal/test/interop ./internal/test/everystore ./internal/queue ./stress/internal/bench
test: server etcd-server redis-server postgresql-server mariadb-server prometheus clients
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && status=0 && export TIERLOCK_REQUIRE_SERVER=1 TIERLOCK_COMMAND="$$dir/tierlock" && \
		go build -ldflags=-w -o "$$dir/tierlock" ./cmd/tierlock && \
		run() { $(GOTESTSUM) --format pkgname --hide-summary skipped --jsonfile "$$dir/$$1.json" -- \
			-ldflags=-w -shuffle=on -timeout 20m -p 5 -parallel 8 "$${@:2}" || status=$$?; } && \
		run searches -run '$(SEARCHES)' ./internal/test/explore ./cmd/tierlock/internal/agent ./stress/internal/trace && \
		run others $(RACE) -skip '$(SEARCHES)' $(LONGEST) $(PACKAGES) && \
		cat "$$dir"/*.json | $(GOTESTSUM) tool slowest --num 20 && exit $$status

# compat runs all tests that start servers on other versions: ZooKeeper 3.9, etcd 3.4, Valkey 8 and MySQL. It downloads them from Debian
# 13, 12 and unstable. Only the servers differ, and therefore it needs no race detector.
compat: server
	@home=$$(scripts/get-zookeeper-3.9.sh) && etcd=$$(scripts/get-etcd-3.4.sh) && valkey=$$(scripts/get-valkey.sh) && \
		mysql=$$(scripts/get-mysql.sh) && export ZOOKEEPER_HOME=$$home ETCD=$$etcd REDIS_SERVER=$$valkey MARIADB_HOME=$$mysql && \
		env | grep -E "^(ZOOKEEPER_HOME|ETCD|REDIS_SERVER|MARIADB_HOME)=" && \
		TIERLOCK_REQUIRE_SERVER=1 go test -shuffle=on -timeout 15m $(STARTERS)

# library tests the packages above ZooKeeper's client library with the newest commit of that library, in a copy of the committed files.
library: server
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && git archive HEAD | tar -x -C "$$copy" && cd "$$copy" && \
		go get github.com/go-zookeeper/zk@master && go list -m github.com/go-zookeeper/zk && \
		TIERLOCK_REQUIRE_SERVER=1 go test $(RACE) -shuffle=on -timeout 30m -skip TestTheTestedLibraryIsThatOfTheModule \
			./zklock/... ./internal/zknode/... ./tier ./internal/test/explore

# verdicts tests tierlock and its peers under the same faults on real servers, and writes docs/verdicts.md. It makes four trials of each
# cell in at most twenty minutes. With FULL=1 it makes thirty, which takes a night. Its module is outside of go.work, because client-go has
# all types of Kubernetes. If Curator or kazoo is not available, the document says so.
verdicts: server etcd-server redis-server postgresql-server
	-@scripts/get-interop.sh
	cd stress/verdicts && GOWORK=off go run . $(if $(FULL),-trials 30) -to ../../docs/verdicts.md

# manifest checks docs/agent-daemonset.yaml against the types of Kubernetes, which only the module of verdicts has.
manifest:
	cd stress/verdicts && GOWORK=off go test ./manifest

# sim runs long random schedules of the explorer, and 10,200 slots of package slots with random faults. It also tests the promises over a
# connection of the program, which the race detector would fail because of the client library.
SEEDS ?= 500
sim:
	@set -o pipefail; go test -count=1 -timeout 5h -v ./internal/test/explore -run TestRandomSchedules -seeds $(SEEDS) | \
		grep -v -e '^ *---' -e '^===' -e '^PASS' -e '^ok'
	@go test -count=1 ./slots -run TestRandomFaults -seeds 17
	@go test -count=1 ./internal/zknode -run TestTierOverAConnectionMadeElsewhere

# explore tries the orders of messages with one fault at small scopes, all of them or up to a bound. explore-all goes on for hours.
# Executions allocate much and keep nothing, and therefore garbage is collected less often.
EXPLORE = @set -o pipefail; GOGC=400 go test -count=1 -timeout 8h -v $(1) -run TestScopes -all $(2) | \
	grep -v -e '^ *---' -e '^===' -e '^PASS' -e '^ok'
explore:
	$(call EXPLORE,./internal/test/explore ./cmd/tierlock/internal/agent)
explore-all:
	$(call EXPLORE,./internal/test/explore,-night)

# mutants removes one guard at a time. The tests have to fail each time.
N ?= 200
mutants:
	@go run ./internal/test/mutants -n $(N)

# interop runs tierlock, Curator, kazoo and zk.Lock on the same paths.
interop: server
	@scripts/get-interop.sh
	TIERLOCK_REQUIRE_SERVER=1 TIERLOCK_REQUIRE_INTEROP=1 go test $(RACE) -v -count=1 -parallel 5 ./internal/test/interop -duration 20s

# lint builds the linters in these versions from the module proxy. Linters on the PATH are not used.
lint:
	$(GOLANGCI_LINT) run $(PACKAGES)
	$(ACTIONLINT) -shellcheck= -pyflakes=

# vuln reports known vulnerabilities that the code can reach, according to the database at vuln.go.dev.
vuln:
	@set -e; for dir in $$(go list -m -f '{{.Dir}}'); do (cd "$$dir" && $(GOVULNCHECK) ./...); done

# fuzz runs each fuzz test for the time FUZZ.
FUZZ ?= 1m
fuzz:
	@set -e; grep -l '^func Fuzz' $$(git ls-files '*_test.go') | while read -r file; do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z]*\)(.*/\1/p' "$$file"); do \
			go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZ) "./$$(dirname "$$file")"; done; done

# cross builds and vets everything for the systems that users have. The packages in PURE need nothing of the system. Linux also runs their
# tests with 32 bits.
TARGETS ?= linux/amd64 linux/arm64 linux/386 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
PURE := ./mutexbool ./internal/second ./internal/lease ./internal/queue ./internal/wire ./internal/zknode/internal/link ./tier
cross: export CGO_ENABLED = 0
cross:
	@for target in $(TARGETS); do echo "go build and go vet for $$target"; export GOOS=$${target%/*} GOARCH=$${target#*/}; \
		go build $(PACKAGES) && go vet $(PACKAGES) || exit 1; done
	@[ "$$(go env GOHOSTOS GOHOSTARCH | paste -sd/)" != linux/amd64 ] || GOARCH=386 go test $(PURE)

# wine runs the tests of the command on Windows with wine, except those of Ctrl-C and Ctrl-Break: wine 8 does not deliver these to all
# processes that should get them.
wine: export GOOS = windows
wine: export GOARCH = amd64
wine: export CGO_ENABLED = 0
wine:
	@wine=$$(GOOS= GOARCH= scripts/get-wine.sh) && dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
		go build -o "$$dir/tierlock.exe" ./cmd/tierlock && \
		TIERLOCK_COMMAND="Z:$$dir/tierlock.exe" go test -count=1 -timeout 3m -exec "$$wine" ./cmd/tierlock ./cmd/tierlock/internal/command

# tidy-check covers the modules of go.work, the module that builds etcd, and the one with client-go.
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

clients:
	@scripts/get-clients.sh
