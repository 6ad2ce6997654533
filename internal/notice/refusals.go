package notice

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Refusals detects that a store refuses or does not answer one kind of request again and again, although it answers renewals. The state of
// the connection does not show that. The kinds of requests are told apart by their purpose, such as "acquire".
type Refusals struct {
	Log   Log
	Fades func() time.Duration // returns the time without a refusal after which earlier refusals are forgotten
	Spawn func(func()) bool    // runs a function in a goroutine, so that a slow logger delays no request

	some     atomic.Bool // runs or suspects may have entries; while it is false, a request need not lock the mutex
	mu       sync.Mutex  // guards the fields below
	runs     map[string]*run
	suspects map[string]refusal // requests without an answer; the next renewal shows whether there is an outage
}

type refusal struct {
	path string
	err  error
}

// A run is a sequence of refusals with no successful request in between.
type run struct {
	refusal
	since, last time.Time
	due         time.Time // when to log the next warning
	warnings    int
}

// Refused records that a request about path was answered with an error.
func (r *Refusals) Refused(what, path string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteLocked(what, refusal{path, err})
}

// Suspect records that a request about path was not answered. If the next renewal is answered, this counts as a refusal.
func (r *Refusals) Suspect(what, path string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.suspects == nil {
		r.suspects = make(map[string]refusal)
	}
	r.suspects[what] = refusal{path, err}
	r.some.Store(true)
}

// Reached records whether a renewal was answered. If it was not, there is an outage, and the requests without an answer do not count as
// refusals.
func (r *Refusals) Reached(reached bool) {
	if !r.some.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !reached {
		clear(r.runs)
	}
	for what, s := range r.suspects {
		if reached {
			r.noteLocked(what, s)
		}
	}
	clear(r.suspects)
	r.some.Store(len(r.runs) > 0)
}

func (r *Refusals) noteLocked(what string, why refusal) {
	now, n := time.Now(), r.runs[what]
	if n == nil || now.Sub(n.last) > r.Fades() {
		n = &run{since: now, due: now.Add(lasting)}
		if r.runs == nil {
			r.runs = make(map[string]*run)
		}
		r.runs[what] = n
		r.some.Store(true)
	}
	n.refusal, n.last = why, now
	if now.Before(n.due) {
		return
	}
	n.warnings++
	n.due = now.Add(min(lasting<<min(n.warnings, 10), rarest))
	seen := *n
	r.Spawn(func() {
		r.Log.Logger.Warn(r.Log.Package+": the store refuses every request", "to", what, "path", seen.path,
			"since", seen.since, "for", now.Sub(seen.since), "err", seen.err)
	})
}

const lasting = 3 * time.Second // how long refusals last before they are logged and reported

// Served records that a request with this purpose succeeded.
func (r *Refusals) Served(what string) {
	if !r.some.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.runs[what]
	delete(r.runs, what)
	delete(r.suspects, what)
	r.some.Store(len(r.runs)+len(r.suspects) > 0)
	if n != nil && n.warnings > 0 {
		r.Spawn(func() {
			r.Log.Logger.Info(r.Log.Package+": the store serves requests again", "to", what, "since", n.since, "for", time.Since(n.since))
		})
	}
}

// Err returns why the store refuses requests, if it has refused them for long enough. Otherwise Err returns nil.
func (r *Refusals) Err() (err error) {
	if !r.some.Load() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var since time.Time
	for what, n := range r.runs {
		lasts := n.last.Sub(n.since) >= lasting && time.Since(n.last) <= r.Fades()
		if lasts && (err == nil || n.since.Before(since)) {
			since = n.since
			err = fmt.Errorf("the store refuses every request to %s, for %v so far, the last one for %s: %w",
				what, n.last.Sub(n.since).Round(time.Second), n.path, n.err)
		}
	}
	return err
}
