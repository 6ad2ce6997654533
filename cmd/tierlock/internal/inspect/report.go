package inspect

import (
	"fmt"
	"time"
)

// A Grade is the severity of a finding.
type Grade string

const (
	OK      Grade = "ok"
	Note    Grade = "note"    // information
	Warning Grade = "warning" // something may fail, or will fail
	Problem Grade = "problem" // a lock does not exclude others, or no process can get it
)

// Bad reports whether an operator should act.
func (g Grade) Bad() bool { return g == Warning || g == Problem }

// A Finding is a remark about a lock path or one of its children.
type Finding struct {
	Grade Grade  `json:"grade"`
	Child string `json:"child,omitempty"` // the child that the finding is about; "" for the path
	Text  string `json:"text"`
}

// A Report has the state of a lock path, and findings about it.
type Report struct {
	*Queue
	Findings []Finding `json:"findings"`
}

// Bad reports whether an operator should act on one of the findings.
func (r *Report) Bad() bool {
	for _, f := range r.Findings {
		if f.Grade.Bad() {
			return true
		}
	}
	return false
}

// Find adds a finding.
func (r *Report) Find(grade Grade, child, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{grade, child, fmt.Sprintf(format, args...)})
}

// FindRole adds a finding that describes a contender, and for which contenders it waits.
func (r *Report) FindRole(c *Contender) { r.Find(OK, c.Node, "%s", c.explain()) }

// FindWishes adds findings about a revoke request to a contender, and about how long it may linger.
func (r *Report) FindWishes(c *Contender) {
	switch {
	case c.Asked && c.PID == 0:
		r.Find(Note, c.Node, "it was asked to release the lock; the request has overwritten the data of the node, "+
			"so its host and process are unknown")
	case c.Asked:
		r.Find(Note, c.Node, "it was asked to release the lock")
	}
	if c.LingerMS > 0 {
		r.Find(Note, c.Node, "its process may keep the lock for %d ms while it is idle", c.LingerMS)
	}
}

// A wait that is longer than longWait is reported.
const longWait = time.Minute

// FindLongWait reports a long wait.
func (r *Report) FindLongWait() {
	for i := range r.Contenders {
		if c := &r.Contenders[i]; c.State == Waits && c.Age() > longWait {
			r.Find(Note, "", "#%d has waited for %v; tierlock watch shows whether the lock changes hands or one process keeps it",
				c.Sequence, c.Age().Truncate(time.Second))
			break
		}
	}
}
