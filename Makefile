.PHONY: demo test lint tidy-check server

# The race detector needs a C compiler, which Go knows of when it enables cgo.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

# Ten seconds of four processes with fifty goroutines each on a private ZooKeeper, and the verdict.
demo: server
	go run ./stress -duration 10s

# Everything, on real servers; fails where it cannot get one.
test: server
	@test -z "$$(gofmt -l .)" || { gofmt -d .; exit 1; }
	go vet ./... ./stress/...
	TIERLOCK_REQUIRE_SERVER=1 go test $(RACE) -shuffle=on -timeout 15m ./... ./stress/...

lint:
	@if command -v golangci-lint >/dev/null; then golangci-lint run ./... ./stress/...; else echo "golangci-lint is not installed"; fi

tidy-check:
	GOWORK=off go mod tidy -diff
	cd stress && GOWORK=off go mod tidy -diff

server:
	@scripts/get-zookeeper.sh
