package election_test

import (
	"context"
	"fmt"
	"net/http/httputil"
	"net/url"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// connect stands for zklock.Dial(ctx, "zk1:2181,zk2:2181,zk3:2181"). It starts a ZooKeeper in memory, for one example.
func connect(ctx context.Context, label string) (locks *tier.Registry, disconnect func()) {
	srv := zktest.NewServer(zktest.Config{})
	locks, err := zklock.Dial(ctx, "127.0.0.1:2181", zklock.WithDialContext(srv.DialContext), tier.WithLabel(label))
	if err != nil {
		panic(err)
	}
	return locks, func() {
		locks.Close()
		srv.Close()
	}
}

// A program cancels ctx when it has to stop, as signal.NotifyContext does.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	locks, disconnect := connect(ctx, "first")
	defer disconnect()

	e := election.New(locks, "/elections/reports")
	err := e.Run(ctx, func(ctx context.Context, _ int64) error {
		fmt.Println("leading:", e.IsLeader() == nil)
		stop() // the program is stopped
		<-ctx.Done()
		return nil // resigns
	})
	fmt.Println(err)
	fmt.Println(e.IsLeader())
	// Output:
	// leading: true
	// election: run /elections/reports: context canceled
	// not the leader
}

// If the leading function returns nil, Run returns, too. That is useful for work that is done once.
func ExampleElection_Run() {
	ctx := context.Background()
	locks, disconnect := connect(ctx, "first")
	defer disconnect()

	err := election.New(locks, "/elections/migration").Run(ctx, func(context.Context, int64) error {
		fmt.Println("migrated")
		return election.ErrStop
	})
	fmt.Println(err)
	// Output:
	// migrated
	// <nil>
}

func ExampleElection_Observe() {
	ctx := context.Background()
	locks, disconnect := connect(ctx, "first")
	defer disconnect()
	e := election.New(locks, "/elections/reports")
	go e.Run(ctx, func(ctx context.Context, _ int64) error {
		<-ctx.Done()
		return nil
	})

	for leader, err := range e.Observe(ctx) {
		fmt.Println(leader.Label, "leads,", err)
		break
	}
	// Output: first leads, <nil>
}

// The leader publishes its address, and a follower forwards requests to it.
func ExampleElection_Publish() {
	ctx := context.Background()
	locks, disconnect := connect(ctx, "first")
	defer disconnect()
	e := election.New(locks, "/elections/reports")
	go e.Run(ctx, func(ctx context.Context, _ int64) error {
		if err := e.Publish(ctx, []byte("http://10.0.0.7:8080")); err != nil {
			return err // resigns
		}
		<-ctx.Done()
		return nil
	})

	var proxy httputil.ReverseProxy // of a follower, which serves proxy.Rewrite(request)
	for leader, err := range e.Observe(ctx) {
		if err != nil {
			panic(err)
		}
		target, err := url.Parse(string(leader.Published))
		if err != nil || target.Host == "" {
			continue // the leader has not published its address yet
		}
		proxy.Rewrite = func(r *httputil.ProxyRequest) { r.SetURL(target) }
		fmt.Println(leader.Label, "gets the requests at", target.Host)
		break
	}
	// Output: first gets the requests at 10.0.0.7:8080
}
