// Package patterns bounds what metrics tell of lock paths: programs make paths of customers and jobs,
// and each new label of a metric costs memory for ever.
package patterns

import (
	"fmt"
	"path"
	"slices"
)

// Other stands for paths that match no pattern.
const Other = "other"

// Patterns are those of a program, as [path.Match] takes them: "/jobs/*".
type Patterns []string

// Check returns an error for a pattern that is malformed.
func (p Patterns) Check() error {
	for _, pattern := range p {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("path pattern %q: %w; want one of path.Match, such as /jobs/*", pattern, err)
		}
	}
	return nil
}

// All returns all that Of can return, each once.
func (p Patterns) All() []string {
	all := append(slices.Clone(p), Other)
	slices.Sort(all)
	return slices.Compact(all)
}

// Of returns the first pattern that the path of a lock matches, or [Other].
func (p Patterns) Of(lock string) string {
	for _, pattern := range p {
		if ok, _ := path.Match(pattern, lock); ok {
			return pattern
		}
	}
	return Other
}
