package zktest_test

import (
	"fmt"
	"io"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock/zktest"
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

// If a reply is lost, the client cannot know that its node was created.
func ExampleServer_Intercept() {
	s := zktest.NewServer(zktest.Config{})
	defer s.Close()
	conn := exampleConn(s)
	defer conn.Close()

	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Op == "create" && f.Dir == zktest.Reply {
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
			fmt.Println(c.Op, c.Path)
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
	// create /queue
	// create /queue/1
	// left: [1]
}

// When a server of the ensemble fails, the client finds another one, and keeps its session.
func ExampleMember() {
	s := zktest.NewServer(zktest.Config{})
	defer s.Close()
	conn := exampleConn(s, "127.0.0.2:2181")
	defer conn.Close()
	if _, _, err := conn.Exists("/"); err != nil {
		log.Fatal(err)
	}
	before := s.Sessions()[0]

	gone := s.Member(before.Member)
	gone.Refuse() // new connections
	gone.Cut()    // also breaks the connections that the member has
	for {
		if _, _, err := conn.Exists("/"); err == nil {
			break
		}
	}
	after := s.Sessions()[0]
	fmt.Println("same session:", after.ID == before.ID)
	fmt.Println("same member:", after.Member == before.Member)
	// Output:
	// same session: true
	// same member: false
}

func exampleConn(s *zktest.Server, members ...string) *zk.Conn {
	conn, _, err := zk.Connect(append(members, "127.0.0.1:2181"), 10*time.Second,
		zk.WithDialer(s.DialTimeout), zk.WithLogger(log.New(io.Discard, "", 0)), zk.WithLogInfo(false))
	if err != nil {
		log.Fatal(err)
	}
	return conn
}
