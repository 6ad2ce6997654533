//go:build linux || darwin || freebsd

package main_test

import (
	"testing"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// TestCommand runs the tests that the command has to pass on every store. The other tests of this package are about details of ZooKeeper.
func TestCommand(t *testing.T) {
	t.Parallel()
	site := func(t *testing.T, own bool) commandtest.Site {
		server := startServer(t)
		if own {
			server = childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true})
		}
		return commandtest.Site{
			Env:     at(server.Addr()),
			Nowhere: at("127.0.0.1:1"),
			Server:  server,
			Locks: func(t *testing.T, label string) (*tier.Registry, error) {
				return zklock.Dial(t.Context(), server.Addr(), tier.WithLabel(label))
			},
		}
	}
	commandtest.Run(t, site)
	commandtest.RunAlike(t, site)
}
