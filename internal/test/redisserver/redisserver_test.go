package redisserver_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/redisserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServer(t *testing.T) {
	childtest.Run(t, childtest.Make{
		Start: func(t *testing.T) *redisserver.Server {
			return childtest.Start(t, redisserver.Start, redisserver.Config{NoSync: true})
		},
		Mode: "leader", Release: `^\d+\.\d+\.\d+$`,
		Put: func(t *testing.T, s *redisserver.Server, value string) { put(t, s, "kept", value) },
		Get: func(_ *testing.T, s *redisserver.Server) (string, error) { return get(s, "kept"), nil },
	})
}

func TestIsolatedPrimaryGoesOnUntilItMissesItsReplicas(t *testing.T) {
	e := childtest.StartEnsemble(t, redisserver.StartEnsemble, 2, redisserver.Config{MinReplicas: 1, MaxLag: 1})
	old, next := e.Members[0], e.Members[1]
	childtest.Eventually(t, "the primary counts its replica", func() bool {
		_, err := redisserver.Ask(old.Addr(), "SET", "k", "both")
		return err == nil
	})
	childtest.Eventually(t, "the replica has it", func() bool { return get(next, "k") == "both" })
	e.Isolate(old)
	put(t, old, "k", "lost")
	need.OK(t, e.Promote(next))
	need.Equal(t, "the value from before the isolation, on the promoted server", get(next, "k"), "both")
	childtest.Eventually(t, "the isolated primary refuses writes", func() bool {
		_, err := redisserver.Ask(old.Addr(), "SET", "k", "lost")
		return err != nil && strings.Contains(err.Error(), "NOREPLICAS")
	})
	need.Equal(t, "the value that the isolated primary took alone", get(old, "k"), "lost")
	e.Heal()
	childtest.Eventually(t, "the old primary has forgotten what it took alone", func() bool {
		mode, _ := old.Mode()
		return mode == "follower" && get(old, "k") == "both"
	})
}

func TestHealedPrimaryRemainsItIfNobodyWasPromoted(t *testing.T) {
	e := childtest.StartEnsemble(t, redisserver.StartEnsemble, 2, redisserver.Config{NoSync: true})
	e.Isolate(e.Members[0])
	e.Heal()
	put(t, e.Members[0], "k", "v")
	childtest.Eventually(t, "the replica follows", func() bool { return get(e.Members[1], "k") == "v" })
}

func put(t *testing.T, s *redisserver.Server, key, value string) {
	t.Helper()
	need.Get(redisserver.Ask(s.Addr(), "SET", key, value))(t)
}

// The function get returns the value of a key. If the key does not exist, it returns "".
func get(s *redisserver.Server, key string) string {
	answer, err := redisserver.Ask(s.Addr(), "GET", key)
	if err != nil {
		return err.Error()
	}
	return answer[0]
}
