package dropin_test

import (
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock/dropin"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// Only the import of NewLock changes, here from zk.NewLock.
func ExampleNewLock() {
	server := zktest.NewServer(zktest.Config{})
	defer server.Close()
	conn, _, err := zk.Connect([]string{"127.0.0.1:2181"}, 10*time.Second, zk.WithDialer(server.DialTimeout), zk.WithLogInfo(false))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	lock := dropin.NewLock(conn, "/locks/report", zk.WorldACL(zk.PermAll))
	fmt.Println(lock.Lock())
	fmt.Println(lock.Unlock())
	// Output:
	// <nil>
	// <nil>
}
