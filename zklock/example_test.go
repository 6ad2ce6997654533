package zklock_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func Example() {
	server := zktest.NewServer(zktest.Config{}) // stands for an ensemble
	defer server.Close()

	ctx := context.Background()
	client, err := zklock.Dial(ctx, "127.0.0.1:2181", zklock.WithDialContext(server.DialContext))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	lock, err := client.Lock("/locks/report")
	if err != nil {
		fmt.Println(err)
		return
	}
	node, err := lock.Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held:", node.Err() == nil)

	_, err = lock.TryAcquire(ctx)
	fmt.Println("free for others:", !errors.Is(err, zklock.ErrLocked))

	if err := node.Release(); err != nil {
		fmt.Println(err) // the work was not protected to its end
	}
	// Output:
	// held: true
	// free for others: false
}

func ExampleNode_Lost() {
	server := zktest.NewServer(zktest.Config{})
	defer server.Close()

	ctx := context.Background()
	client, err := zklock.Dial(ctx, "127.0.0.1:2181", zklock.WithDialContext(server.DialContext))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	lock, err := client.Lock("/locks/report")
	if err != nil {
		fmt.Println(err)
		return
	}
	node, err := lock.Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}

	server.Expire(server.Sessions()[0].ID)

	<-node.Lost()
	fmt.Println(errors.Is(node.Err(), zklock.ErrLost))
	fmt.Println(errors.Is(node.Release(), zklock.ErrLost))
	// Output:
	// true
	// true
}

// Nobody else can take or break the locks, whoever can reach the servers.
func ExampleWithTLS() {
	roots := x509.NewCertPool() // with the authority that has signed the servers' certificates
	own, err := tls.LoadX509KeyPair("service.pem", "service.key")
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := zklock.Dial(context.Background(), "zk1.example.com:2281,zk2.example.com:2281/app",
		zklock.WithTLS(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}),
		zklock.WithACL(zk.AuthACL(zk.PermAll))) // for clients with the same certificate
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
}
