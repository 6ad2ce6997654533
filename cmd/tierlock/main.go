// Tierlock runs a command under a distributed lock on ZooKeeper, etcd, PostgreSQL, MySQL or Redis, and shows operators the
// holders and waiters of locks.
//
//	go build -o tierlock ./cmd/tierlock # in a clone, until there is a release
//	tierlock help
package main

import (
	"os"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/etcd"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/host"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/mysql"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/postgres"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/redis"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/zookeeper"
)

func main() {
	stores := []*command.Store{zookeeper.Store(), etcd.Store(), postgres.Store(), mysql.Store(), redis.Store(), host.Store()}
	os.Exit(command.Main(stores, os.Args[1:], os.Stdout, os.Stderr))
}
