package etcdserver_test

import (
	"testing"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/etcdserver"
	"github.com/tierlock/tierlock/internal/test/need"
)

func TestServer(t *testing.T) {
	childtest.Run(t, childtest.Make{
		Start: func(t *testing.T) *etcdserver.Server {
			return childtest.Start(t, etcdserver.Start, etcdserver.Config{})
		},
		Mode: "leader", Release: `^3\.\d+\.\d+$`,
		Put: func(t *testing.T, s *etcdserver.Server, value string) { need.OK(t, put(s.Addr(), "kept", value)) },
		Get: func(_ *testing.T, s *etcdserver.Server) (string, error) { return get(s.Addr(), "kept") },
	})
}
