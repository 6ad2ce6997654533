// Package inspect defines what an operator can see of the locks of any store: the holders, the waiters, and the contenders for which each
// waits. It also finds changes since the last read, and possible problems. It only reads. The result of reading a queue is not a snapshot
// of one instant.
package inspect

import (
	"context"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// A Reader reads the locks of a store. Its methods wait until the store answers or ctx ends.
type Reader interface {
	// List finds the locks at a path and below it, in the order of their paths. It reads at most limit paths. If all is true, it also
	// returns idle locks.
	List(ctx context.Context, path string, limit int, all bool) (*Listing, error)
	// Look reads the queue of a lock, and everything else at its path. If nothing is there, the queue is empty.
	Look(ctx context.Context, path string) (*Queue, error)
	// Glance reads only the queue. The parameter before is the result of the last glance, or nil if there was none.
	Glance(ctx context.Context, path string, before *Queue) (*Queue, error)
}

// A Refusal is the error of a store that does not permit this user to read. A retry would not help.
type Refusal struct{ Err error }

func (r *Refusal) Error() string { return r.Err.Error() }

func (r *Refusal) Unwrap() error { return r.Err }

// A Queue is the result of one read of a lock path. Programs may rely on its names in JSON.
type Queue struct {
	Path       string      `json:"path"`
	Exists     bool        `json:"exists"`
	At         time.Time   `json:"at"`            // the time of the read, by this machine's clock
	Next       int64       `json:"next_sequence"` // the number of the next node; 0 if the store does not count nodes
	Contenders []Contender `json:"contenders"`
	Others     []Other     `json:"others"`
	Semaphore  *Semaphore  `json:"semaphore,omitempty"` // null if there is no semaphore at the path

	GracePeriod *tier.GracePeriodError `json:"gracePeriod,omitempty"` // null if the store grants locks

	Born   int64 `json:"-"` // distinguishes this path from one that was deleted and created again
	Stale  bool  `json:"-"` // the nodes have to be read again
	Memory any   `json:"-"` // what the reader reuses at the next glance
}

// An Other is an entry at a lock path that is not a contender.
type Other struct {
	Name      string    `json:"name"`
	Readable  bool      `json:"readable"`
	Ephemeral bool      `json:"ephemeral"`
	Since     time.Time `json:"since,omitzero"`
	Children  int       `json:"children"`
}

// Holders returns all contenders that hold the lock. There are several if they are readers, or if they do not exclude each other.
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

// Waiting returns the number of contenders that do not hold the lock, as far as their names show.
func (q *Queue) Waiting() int { return len(q.Contenders) - len(q.Holders()) }

// Holder returns the first holder. If the lock is free or q is nil, it returns nil.
func (q *Queue) Holder() *Contender {
	if q == nil || len(q.Contenders) == 0 || q.Contenders[0].State == InGracePeriod {
		return nil
	}
	return &q.Contenders[0]
}

// A Listing has the locks below a path, in the order of their paths.
type Listing struct {
	Path       string    `json:"path"`
	Locks      []Summary `json:"locks"`
	Looked     int       `json:"looked_at"`            // the number of paths that were read
	Complete   bool      `json:"complete"`             // if it is false, there are more locks below the path
	Unreadable []string  `json:"unreadable,omitempty"` // the paths that this user may not list

	GracePeriod *tier.GracePeriodError `json:"gracePeriod,omitempty"` // null if the store grants locks
}

// A Summary is the entry of a lock in a list.
type Summary struct {
	Path    string     `json:"path"`
	Holder  *Contender `json:"holder,omitempty"`
	Holders int        `json:"holders"`             // more than one if they are readers
	Queue   int        `json:"queue"`               // the number of contenders, including holders; for a semaphore the number of waiters
	Permits *Permits   `json:"semaphore,omitempty"` // null if the path is no semaphore
}
