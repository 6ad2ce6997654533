package main

import (
	"context"
	"time"

	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/tier"
)

const (
	members        = 3
	sessionTimeout = 4 * time.Second
)

// site is a store under test. Its servers can be cut off from one another; a single server can be cut off from the holder.
type site struct {
	store  *store.Store
	faults []fault
	// namespaces says that each server needs its own network namespace.
	namespaces bool
	// start starts an ensemble for a lab, and the network between its members.
	start func(ctx context.Context, l *lab) error
	// write makes a guarded write, whose result is ignored. If write is nil, holders do not write.
	write func(ctx context.Context, hold *tier.Hold, path string)
}

// locks is a [tier.Registry] for any store.
type locks interface {
	Mutex(path string, options ...tier.Option) *tier.Mutex
	Close() error
}

// dial connects a lock process. Except for the session timeout, all settings are defaults, because most users have the defaults.
func (s *site) dial(ctx context.Context, servers []string) (locks, error) {
	locker, err := s.store.Locks["mutex"].Dial(ctx, store.Options{Servers: servers, SessionTimeout: sessionTimeout})
	if err != nil {
		return nil, err
	}
	return locker.(locks), nil
}

var sites = []*site{zooKeeper, etcd, lone(store.Postgres), lone(store.PostgresAdvisory), lone(store.Redis), lone(store.MySQL)}

// siteOf returns the site of the store with this name. It returns nil if there is none.
func siteOf(name string) *site {
	for _, s := range sites {
		if s.store.Name == name {
			return s
		}
	}
	return nil
}

func (s *site) faultNames() (names []string) {
	for _, f := range s.faults {
		names = append(names, f.name)
	}
	return names
}
