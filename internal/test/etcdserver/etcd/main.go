// Command etcd is the official etcd server. The script scripts/get-etcd.sh builds it. The command is in a module of its own, so that no
// other module depends on the modules that the server needs.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
