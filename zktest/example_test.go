package zktest_test

import (
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zkconn"
	"github.com/tierlock/tierlock/zktest"
)

func Example() {
	s := zktest.NewServer(zktest.Config{})
	defer s.Close()
	conn, _, err := zk.Connect([]string{"127.0.0.1:2181"}, 10*time.Second,
		zk.WithDialer(s.DialTimeout), zk.WithLogInfo(false))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	path, err := conn.Create("/lock-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	fmt.Println(path, err)
	_, stat, err := conn.Get(path)
	fmt.Println(stat.EphemeralOwner == conn.SessionID(), err)
	// Output:
	// /lock-0000000000 <nil>
	// true <nil>
}

func ExampleServer_Expire() {
	s := zktest.NewServer(zktest.Config{})
	defer s.Close()
	holder := exampleConn(s)
	defer holder.Close()
	watcher := exampleConn(s)
	defer watcher.Close()

	if _, err := holder.Create("/held", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		log.Fatal(err)
	}
	_, _, gone, err := watcher.GetW("/held")
	if err != nil {
		log.Fatal(err)
	}
	s.Expire(holder.SessionID())
	fmt.Println((<-gone).Type)
	// Output: EventNodeDeleted
}

// A reply is lost: the client cannot know that its node was created.
func ExampleServer_Intercept() {
	s := zktest.NewServer(zktest.Config{})
	defer s.Close()
	conn := exampleConn(s)
	defer conn.Close()

	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Op == zktest.OpCreate && f.Stage == zktest.Reply {
			return zktest.Cut
		}
		return zktest.Pass
	})
	_, err := conn.Create("/n", nil, 0, zk.WorldACL(zk.PermAll))
	fmt.Println(err)
	fmt.Println(s.Exists("/n"))
	// Output:
	// zk: connection closed
	// true
}

func ExampleServer_OnChange() {
	s := zktest.NewServer(zktest.Config{})
	defer s.Close()
	conn := exampleConn(s)
	defer conn.Close()

	s.OnChange(func(v zktest.View, changes []zktest.Change) {
		for _, c := range changes {
			fmt.Println(c.Kind, c.Path)
		}
		fmt.Println("left:", v.Children("/queue"))
	})
	_, err := conn.Multi(
		&zk.CreateRequest{Path: "/queue", Acl: zk.WorldACL(zk.PermAll)},
		&zk.CreateRequest{Path: "/queue/1", Acl: zk.WorldACL(zk.PermAll)},
	)
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// created /queue
	// created /queue/1
	// left: [1]
}

func exampleConn(s *zktest.Server) *zk.Conn {
	conn, _, err := zk.Connect([]string{"127.0.0.1:2181"}, 10*time.Second,
		zk.WithDialer(s.DialTimeout), zk.WithLogger(zkconn.Silent{}), zk.WithLogInfo(false))
	if err != nil {
		log.Fatal(err)
	}
	return conn
}
