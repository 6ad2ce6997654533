package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"
)

// Place is where the locks of a run are to be.
type Place struct {
	Servers []string
	Prefix  string // of all paths, "" or "/..."
	Lock    string // the kind
	Paths   int
}

// site is where the locks of one run are.
type site struct {
	servers []string
	base    string   // of the lock paths, of this run alone
	paths   []string // of the locks
}

func (p Place) site() site {
	s := site{servers: p.Servers, base: fmt.Sprintf("%s/tierlock-stress-%s-%s", p.Prefix, rand.Text()[:8], p.Lock)}
	for i := range p.Paths {
		s.paths = append(s.paths, fmt.Sprintf("%s/%d", s.base, i))
	}
	return s
}

// Paths are those of the locks.
func (s site) Paths() []string { return s.paths }

// Observer is the coordinator's own view of the store.
type Observer interface {
	// Paths are those of the locks. Nobody else uses them.
	Paths() []string
	// Orphans counts what the locks have left there.
	Orphans() (int64, error)
	// Traffic is what the servers have done so far; false if they do not say.
	Traffic() (Traffic, bool)
	// Renew opens another session, for one that may have suffered from an outage.
	Renew(ctx context.Context) error
	// Close removes the empty paths of this run, in case nobody else does, and ends the
	// session.
	Close()
}

// Traffic is what servers have done so far.
type Traffic struct {
	Packets int64 // received and sent; zero if they do not count them
	Writes  int64 // transactions
}

// Leaked counts the orphans, again and again while there are any and there is patience
// left.
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
