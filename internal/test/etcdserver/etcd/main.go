// Command etcd is the etcd server as its authors release it, for scripts/get-etcd.sh to
// build: a module of its own, so that nothing else depends on a server's dependencies.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
