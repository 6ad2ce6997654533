package store

import (
	"context"

	"github.com/tierlock/tierlock/agentlock"
)

// Agent is the store of a client of an agent: the only server is the address of the agent's socket. Names does not list it, because the
// agent needs another store for its locks.
var Agent = &Store{Name: "agent", Title: "the agent", Locks: map[string]Kind{"mutex": {Dial: dialAgent}}}

func dialAgent(ctx context.Context, o Options) (Locker, error) {
	locks, err := agentlock.Dial(ctx, o.Servers[0])
	if err != nil {
		return nil, err
	}
	return tiered{Registry: locks, disconnect: func() error { return nil }}, nil
}
