// Package inspect defines what can be seen of locks from outside, on any store: the holders, the waiters and what each waits for, changes
// since the last read, and possible problems. It only reads; a read of a queue is not a snapshot of one instant.
package inspect

import (
	"context"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// A Reader reads the locks of a store. It waits until the store answers or ctx is done.
type Reader interface {
	// List finds the locks at a path and below it, in the order of their paths; it reads at most limit paths. With all it also returns idle
	// ones.
	List(ctx context.Context, path string, limit int, all bool) (*Listing, error)
	// Look reads the queue of a lock, and everything else at its path. If there is nothing, the queue is empty.
	Look(ctx context.Context, path string) (*Queue, error)
	// Glance reads the queue alone. before is the last glance, nil if there was none.
	Glance(ctx context.Context, path string, before *Queue) (*Queue, error)
}

// A Refusal is the error of a store that does not let this user read; another try would not help.
type Refusal struct{ Err error }

func (r *Refusal) Error() string { return r.Err.Error() }

func (r *Refusal) Unwrap() error { return r.Err }

// A Queue is the result of one read of a lock path. Programs may rely on its names in JSON.
type Queue struct {
	Path       string      `json:"path"`
	Exists     bool        `json:"exists"`
	At         time.Time   `json:"at"`            // of the look, by this machine's clock
	Next       int64       `json:"next_sequence"` // number of the next node; 0 if the store does not count
	Contenders []Contender `json:"contenders"`
	Others     []Other     `json:"others"`
	Semaphore  *Semaphore  `json:"semaphore,omitempty"` // null if there is none at the path

	GracePeriod *tier.GracePeriodError `json:"gracePeriod,omitempty"` // null if the store grants locks

	Born   int64 `json:"-"` // tells the path from one made anew at the same place
	Stale  bool  `json:"-"` // its nodes have to be read again
	Memory any   `json:"-"` // what the reader wants to know at the next glance
}

// An Other is an entry at a lock path that is not a contender.
type Other struct {
	Name      string    `json:"name"`
	Readable  bool      `json:"readable"`
	Ephemeral bool      `json:"ephemeral"`
	Since     time.Time `json:"since,omitzero"`
	Children  int       `json:"children"`
}

// Holders returns all contenders that have the lock: several if they are readers, or do not exclude each other.
func (q *Queue) Holders() (holders []*Contender) {
	if q == nil {
		return nil
	}
	for i := range q.Contenders {
		if c := &q.Contenders[i]; c.State == Holds {
			holders = append(holders, c)
		}
	}
	return holders
}

// Waiting returns how many contenders do not have the lock, as far as their names show.
func (q *Queue) Waiting() int { return len(q.Contenders) - len(q.Holders()) }

// Holder returns the first holder, nil if the lock is free or q is nil.
func (q *Queue) Holder() *Contender {
	if q == nil || len(q.Contenders) == 0 || q.Contenders[0].State == InGracePeriod {
		return nil
	}
	return &q.Contenders[0]
}

// A Listing is the locks below a path, in the order of their paths.
type Listing struct {
	Path       string    `json:"path"`
	Locks      []Summary `json:"locks"`
	Looked     int       `json:"looked_at"`            // paths that were listed
	Complete   bool      `json:"complete"`             // else there is more below
	Unreadable []string  `json:"unreadable,omitempty"` // paths that may not be listed

	GracePeriod *tier.GracePeriodError `json:"gracePeriod,omitempty"` // null if the store grants locks
}

// A Summary is the entry of a lock in a list.
type Summary struct {
	Path    string     `json:"path"`
	Holder  *Contender `json:"holder,omitempty"`
	Holders int        `json:"holders"`             // more than one if they read
	Queue   int        `json:"queue"`               // contenders, the holders among them; of a semaphore those that wait
	Permits *Permits   `json:"semaphore,omitempty"` // null if the path is no semaphore
}
