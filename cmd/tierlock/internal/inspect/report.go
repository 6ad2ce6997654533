package inspect

import (
	"fmt"
	"time"
)

// A Grade is the severity of a finding.
type Grade string

const (
	OK      Grade = "ok"
	Note    Grade = "note"    // good to know
	Warning Grade = "warning" // may fail, or will
	Problem Grade = "problem" // a lock that does not exclude, or that no process can get
)

// Bad reports whether an operator should act.
func (g Grade) Bad() bool { return g == Warning || g == Problem }

// A Finding is a remark about a lock path or one of its children.
type Finding struct {
	Grade Grade  `json:"grade"`
	Child string `json:"child,omitempty"` // the child that it is about; "" for the path
	Text  string `json:"text"`
}

// A Report is the state of a lock path, with findings.
type Report struct {
	*Queue
	Findings []Finding `json:"findings"`
}

// Bad reports whether an operator should act.
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

// FindRole adds a description of a contender and of what it waits for.
func (r *Report) FindRole(c *Contender) { r.Find(OK, c.Node, "%s", c.explain()) }

// FindWishes reports a revoke request to a contender, and how long it may linger.
func (r *Report) FindWishes(c *Contender) {
	switch {
	case c.Asked && c.PID == 0:
		r.Find(Note, c.Node, "it was asked to release the lock; the request has replaced its description")
	case c.Asked:
		r.Find(Note, c.Node, "it was asked to release the lock")
	}
	if c.LingerMS > 0 {
		r.Find(Note, c.Node, "its process may keep the lock for %d ms while it is idle", c.LingerMS)
	}
}

// longWait is the duration from which on a wait is reported.
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
