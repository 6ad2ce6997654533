package main

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The test uses another port than the usual one, where a server may be running.
func TestStoreServesWhereItIsTold(t *testing.T) {
	for store := range usual {
		t.Run(store, func(t *testing.T) {
			port := need.Get(child.FreePort())(t)
			var url string
			server := childtest.Start(t, func(ctx context.Context, store string) (server *child.Server, err error) {
				server, url, err = start(ctx, store, port)
				return server, err
			}, store)
			addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
			need.Equal(t, "where "+store+" serves", server.Addr(), addr)
			need.That(t, "the command is told of "+url+" instead of "+addr, strings.Contains(url, addr))
		})
	}
}
