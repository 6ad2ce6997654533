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
	Prefix  string // of all paths, "" or "/..."
	Lock    string // the kind
	Paths   int
}

// site has the servers and paths of one run.
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

// Paths returns the paths of the locks.
func (s site) Paths() []string { return s.paths }

// Observer is the coordinator's own connection to the store.
type Observer interface {
	// Paths returns the paths of the locks. No other program uses them.
	Paths() []string
	// Orphans counts what the locks have left at these paths.
	Orphans() (int64, error)
	// Traffic returns what the servers have counted so far; ok is false if they do not report it.
	Traffic() (Traffic, bool)
	// Renew opens another session, since an outage may have damaged the present one.
	Renew(ctx context.Context) error
	// Close removes the empty paths of this run, unless they are removed anyway, and ends the session.
	Close()
}

// Traffic is what servers have counted so far.
type Traffic struct {
	Packets int64 // received and sent; zero if they do not count them
	Writes  int64 // transactions
}

// Leaked counts the orphans. While there are any it counts again, until patience is over.
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
