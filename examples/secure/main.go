// Secure is a service that uses an ensemble with TLS, and with certificates of the servers and of the clients. Only clients with its
// certificate and its password can acquire its locks, or break them. You can run several processes at the same time:
//
//	ZK_SERVERS=zk1:2281,zk2:2281/app ZK_CA=ca.pem ZK_CERT=service.pem ZK_DIGEST=service:password go run ./examples/secure
//
// In PowerShell, set each variable first, as in $env:ZK_CA = "ca.pem".
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	locks, err := connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	report := locks.Mutex("/locks/report")
	for err == nil {
		err = report.Do(ctx, write)
	}
	if ctx.Err() == nil {
		log.Fatal(err)
	}
}

func connect(ctx context.Context) (*tier.Registry, error) {
	authority, err := os.ReadFile(os.Getenv("ZK_CA"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	own, err := tls.LoadX509KeyPair(os.Getenv("ZK_CERT"), os.Getenv("ZK_CERT")) // the file has both the certificate and the key
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	return zklock.Dial(ctx, os.Getenv("ZK_SERVERS"),
		zklock.WithTLS(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}),
		zklock.WithAuth("digest", []byte(os.Getenv("ZK_DIGEST"))),
		zklock.WithACL(zk.AuthACL(zk.PermAll))) // permits everything to clients with the same certificate or password
}

// write stands for work that only one process at a time may do.
func write(ctx context.Context) error {
	fmt.Println("begin", os.Getpid())
	time.Sleep(10 * time.Millisecond)
	fmt.Println("end", os.Getpid())
	return ctx.Err()
}
