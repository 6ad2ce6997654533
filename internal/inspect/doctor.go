package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
)

// A Grade says how bad a finding is.
type Grade string

const (
	OK      Grade = "ok"
	Note    Grade = "note"    // good to know
	Warning Grade = "warning" // may fail, or will
	Problem Grade = "problem" // a lock that does not exclude, or that nobody can get
)

// Bad reports whether somebody should do something.
func (g Grade) Bad() bool { return g == Warning || g == Problem }

// A Finding is something that can be said of a lock path or of one of its children.
type Finding struct {
	Grade Grade  `json:"grade"`
	Child string `json:"child,omitempty"` // whom it is about; "" for the path
	Text  string `json:"text"`
}

// A Report is what is known of a lock path, and what to make of it.
type Report struct {
	*Queue
	Findings []Finding `json:"findings"`
}

// Bad reports whether somebody should do something.
func (r *Report) Bad() bool {
	for _, f := range r.Findings {
		if f.Grade.Bad() {
			return true
		}
	}
	return false
}

// Examine looks at a lock path and says what to make of it.
func Examine(ctx context.Context, client *zklock.Client, lock *zklock.Lock) (*Report, error) {
	access := lock.Permitted(ctx)
	if access != nil && !errors.Is(access, zk.ErrNoAuth) {
		return nil, access
	}
	q, err := Look(ctx, client, lock.Path())
	if errors.Is(err, zk.ErrNoAuth) { // the rest is unknown
		return &Report{
			Queue:    &Queue{Path: lock.Path(), Exists: true, Contenders: []Contender{}, Others: []Other{}},
			Findings: []Finding{{Problem, "", access.Error()}},
		}, nil
	}
	if err != nil {
		return nil, err
	}
	renewable, err := lock.Renewable(ctx)
	if err != nil && !errors.Is(err, zk.ErrNoAuth) && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	content, err := contentOf(ctx, client, lock.Path())
	if err != nil {
		return nil, err
	}
	r := &Report{Queue: q}
	r.examineAccess(access)
	r.examineNumbers(renewable)
	r.examineMixture()
	r.examineSemaphore(content)
	r.examineSessions()
	for i := range q.Contenders {
		r.examineContender(i)
	}
	for _, o := range q.Others {
		r.examineOther(o)
	}
	return r, nil
}

func (r *Report) find(grade Grade, child, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{grade, child, fmt.Sprintf(format, args...)})
}

func (r *Report) examineAccess(access error) {
	switch {
	case access != nil:
		r.find(Problem, "", "these credentials cannot queue: %v", access)
	case r.Exists:
		r.find(OK, "", "these credentials may queue: CREATE, READ and DELETE are permitted")
	default:
		r.find(OK, "", "does not exist yet: the first to queue creates it, and these credentials may")
	}
}

// Sequence numbers have 31 bits. Paths are made anew from the half on, and the last ones are not used.
const (
	wornFrom     = 1 << 30
	lastSequence = 1<<31 - 1<<20 - 1
)

func (r *Report) examineNumbers(renewable bool) {
	used := fmt.Sprintf("%d of %d sequence numbers are used up", r.Next, lastSequence)
	switch {
	case !r.Exists:
	case r.Next > lastSequence:
		r.find(Problem, "", "%s: nobody can queue any more; delete the path when it is empty", used)
	case r.Next < wornFrom:
		r.find(OK, "", "%s", used)
	case !renewable || len(r.Others) > 0:
		r.find(Warning, "", "%s, and the path is not made anew by itself, because it is not a container that tierlock made "+
			"and nobody changed, or has children that are no lock nodes; delete it once it is empty", used)
	default:
		r.find(Note, "", "%s; tierlock makes the path anew as soon as its queue is empty", used)
	}
}

// longWait is after how long somebody may ask whether a lock changes hands at all.
const longWait = time.Minute

// examineSessions says what can be known of the processes behind the nodes. A node is there as long
// as its session, which outlives the process by the session timeout.
func (r *Report) examineSessions() {
	sessions := make(map[string]bool)
	for _, c := range r.Contenders {
		if c.Ephemeral {
			sessions[c.Session] = true
		}
	}
	if len(sessions) > 0 {
		r.find(OK, "", "sessions that own these nodes: %d; a process that has died stays in the queue until its session times out", len(sessions))
	}
	for i := range r.Contenders {
		if c := &r.Contenders[i]; c.State == Waits && c.Age() > longWait {
			r.find(Note, "", "#%d has waited for %v; tierlock watch tells whether the lock changes hands, or one process keeps it",
				c.Sequence, c.Age().Truncate(time.Second))
			break
		}
	}
}
