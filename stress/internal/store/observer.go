package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"
)

// Place is the location of the locks of a run.
type Place struct {
	Servers []string
	Prefix  string // the beginning of all paths: "" or "/..."
	Lock    string // the kind of the locks
	Paths   int
}

// site has the servers of one run, and the paths of its locks.
type site struct {
	servers []string
	base    string   // the beginning of the lock paths, which no other run uses
	paths   []string // the paths of the locks
}

func (p Place) site() site {
	s := site{servers: p.Servers, base: fmt.Sprintf("%s/tierlock-stress-%s-%s", p.Prefix, rand.Text()[:8], p.Lock)}
	for i := range p.Paths {
		s.paths = append(s.paths, fmt.Sprintf("%s/%d", s.base, i))
	}
	return s
}

// Paths returns the paths of the locks.
func (s site) Paths() []string { return s.paths }

// Observer is the coordinator's own connection to the store.
type Observer interface {
	// Paths returns the paths of the locks of this run. No other program uses them.
	Paths() []string
	// Orphans counts the entries in the store that the locks have left at these paths.
	Orphans() (int64, error)
	// Traffic returns what the servers have counted so far. The bool is false if they do not report it.
	Traffic() (Traffic, bool)
	// Renew opens another session, because an outage may have damaged the one in use.
	Renew(ctx context.Context) error
	// Close removes the empty paths of this run, unless the store removes them itself, and ends the session.
	Close()
}

// Traffic has the counts of the servers since they started.
type Traffic struct {
	Packets int64 // packets that were received or sent; zero if the servers do not count them
	Writes  int64 // number of transactions
}

// Leaked counts the orphans. If there are any, Leaked counts again, until there are none or the time patience is over.
func Leaked(ctx context.Context, o Observer, patience time.Duration) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := o.Orphans()
		if err == nil && n == 0 {
			return 0, nil
		}
		select {
		case <-ctx.Done():
			return n, err
		case <-tick.C:
		}
	}
}
