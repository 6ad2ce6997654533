// Command etcd is the official etcd server, which scripts/get-etcd.sh builds. It is a module of its own, so that no other module gets a
// server's dependencies.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
