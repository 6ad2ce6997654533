package store

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/etcdserver"
	"github.com/tierlock/tierlock/internal/etcdserver/etcdservertest"
)

func TestParseMessages(t *testing.T) {
	const metrics = `# HELP grpc_server_msg_received_total Total number of RPC stream messages received on the server.
grpc_server_msg_received_total{grpc_method="Txn",grpc_service="etcdserverpb.KV",grpc_type="unary"} 40
grpc_server_msg_sent_total{grpc_method="Watch",grpc_service="etcdserverpb.Watch",grpc_type="bidi_stream"} 1.2e+06
grpc_server_started_total{grpc_method="Txn",grpc_service="etcdserverpb.KV",grpc_type="unary"} 7
`
	if got, err := parseMessages(strings.NewReader(metrics)); got != 1_200_040 || err != nil {
		t.Errorf("got %d, %v", got, err)
	}
	if got, err := parseMessages(strings.NewReader("grpc_server_msg_sent_total{} x\n")); err == nil {
		t.Errorf("not a number: got %d", got)
	}
}

func TestGoroutinesOfOneProcessExcludeOneAnother(t *testing.T) {
	server := etcdservertest.Start(t, etcdserver.Config{NoSync: true}).Addr()
	o, err := Etcd.Observe(t.Context(), Place{Servers: []string{server}, Lock: "mutex", Paths: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	locker, err := dialEtcdMutexes(t.Context(), Options{Servers: []string{server}, Goroutines: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	acquire, err := locker.Contender(o.Paths()[0])
	if err != nil {
		t.Fatal(err)
	}
	first, err := acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := acquire(ctx, 1); err == nil {
		t.Fatal("two goroutines have the lock")
	}
	if n, err := o.Orphans(); n != 1 || err != nil {
		t.Errorf("got %d keys, %v, want that of the holder alone", n, err)
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	second, err := acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Release(); err != nil {
		t.Fatal(err)
	}
}
