// Tierlock-etcd runs a command under a distributed lock on etcd, and shows operators who holds locks
// and who waits for them.
//
//	go install github.com/tierlock/tierlock/etcdlock/cmd/tierlock-etcd@latest
//	tierlock-etcd help
package main

import (
	"os"

	"github.com/tierlock/tierlock/internal/command"
)

func main() {
	os.Exit(command.Main(new(etcd).store(), os.Args[1:], os.Stdout, os.Stderr))
}
