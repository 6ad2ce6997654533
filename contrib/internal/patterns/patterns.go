// Package patterns limits the number of labels of metrics about lock paths. Programs create paths for customers and jobs, and each new
// label of a metric costs memory.
package patterns

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// Other is the label of paths that match no pattern.
const Other = "other"

// A Patterns has a program's patterns for [path.Match], such as "/jobs/*".
type Patterns []string

// Check returns an error if a pattern is malformed.
func (p Patterns) Check() error {
	for _, pattern := range p {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("path pattern %q: %w; want one of path.Match, such as /jobs/*", pattern, err)
		}
	}
	return nil
}

// All returns all possible results of Of. Each result appears once.
func (p Patterns) All() []string {
	all := append(slices.Clone(p), Other)
	slices.Sort(all)
	return slices.Compact(all)
}

// Of returns the first pattern that matches the path of a lock. If no pattern matches, it returns [Other].
func (p Patterns) Of(lock string) string {
	for _, pattern := range p {
		if ok, _ := path.Match(pattern, lock); ok {
			return pattern
		}
	}
	return Other
}

// A Holds describes the present holds of a process whose paths match one pattern.
type Holds struct {
	Number int           // the number of held locks
	Oldest time.Duration // the age of the oldest hold; zero if there is none
}

// Held returns the present holds of a process, for each pattern.
func (p Patterns) Held(locks *tier.Registry) map[string]Holds {
	all := make(map[string]Holds)
	for _, pattern := range p.All() {
		all[pattern] = Holds{}
	}
	for _, l := range locks.HeldLocks() {
		if !l.Lingering {
			h := all[p.Of(l.Path)]
			all[p.Of(l.Path)] = Holds{h.Number + 1, max(h.Oldest, time.Since(l.Since))}
		}
	}
	return all
}

// InGracePeriod returns 1 while the store grants no locks, and otherwise 0. Metrics need a number.
func InGracePeriod(locks *tier.Registry) int64 {
	if q := (*tier.GracePeriodError)(nil); errors.As(locks.Err(), &q) {
		return 1
	}
	return 0
}
