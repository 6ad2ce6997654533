package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
	r := &Report{Queue: q}
	r.examineAccess(access)
	r.examineNumbers(renewable)
	r.examineMixture()
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
		r.find(OK, "", "does not exist; whoever queues first makes it, which these credentials may do")
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

// examineMixture looks for sorts of locks that do not exclude each other.
func (r *Report) examineMixture() {
	sorts := r.kinds()
	for i, a := range sorts {
		for _, b := range sorts[i:] {
			if shared(a, b) {
				continue
			}
			r.examineTwo(a, b)
			if a != b {
				r.examineTwo(b, a)
			}
		}
	}
}

func (r *Report) examineTwo(a, b sort) {
	readers := a.kind == zklock.KindKazoo && b.kind == zklock.KindKazooRead
	switch a.waitsFor(b) {
	case no:
		r.find(Problem, "", "%s does not wait for %s: on this path they do not exclude each other%s", a, b, remedy(a, b))
	case perhaps:
		switch {
		case readers:
			r.find(Note, "", "kazoo's Lock does not wait for its readers, its WriteLock does; names do not tell them apart")
		case a.kind == zklock.KindMutex:
			r.find(Warning, "", "%s is of a library that is not known here: it may not wait for %s", a, b)
		default:
			r.find(Warning, "", `%s waits for %s only with extra_lock_patterns=["lock-"], which its name does not tell%s`, a, b, remedy(a, b))
		}
	}
	if a.kind == zklock.KindKazooRead && b.pair {
		r.find(Note, "", "kazoo's ReadLock can get stuck beside %s before kazoo 2.9.0", b)
	}
}

// remedy is what helps where a does not wait for b.
func remedy(a, b sort) string {
	switch {
	case a.kind == zklock.KindRead || a.kind == zklock.KindWrite:
		return "; give Curator's read/write lock a path of its own"
	case a.kind != zklock.KindCurator && b.kind == zklock.KindTierlock:
		return "; or have every tierlock process connect WithKazoo"
	}
	return ""
}

func (r *Report) examineContender(i int) {
	c := &r.Contenders[i]
	r.find(OK, c.Node, "%s", r.explain(c))
	switch {
	case !c.Readable:
		r.find(Warning, c.Node, "may not be read with these credentials: whose it is, and whether it goes with its process, is unknown")
	case !c.Ephemeral && i == 0:
		r.find(Problem, c.Node, "belongs to no session: it stays, and all behind it wait for ever; if it is nobody's, "+
			"tierlock break %s -token %d", r.Path, c.Token)
	case !c.Ephemeral:
		r.find(Problem, c.Node, "belongs to no session: it stays, and all behind it will wait for ever; if it is nobody's, delete it")
	}
	switch {
	case c.Sequence < 0:
		r.find(Problem, c.Node, "has a negative number: no tierlock process can queue; delete it if it is nobody's")
	case c.Sequence > lastSequence:
		r.find(Problem, c.Node, "has a number beyond the last that is used, %d", lastSequence)
	case i > 0 && c.Sequence == r.Contenders[i-1].Sequence:
		r.find(Problem, c.Node, "has the number of %s: both may take themselves for the first", r.Contenders[i-1].Node)
	}
	if c.Kind == zklock.KindKazoo && strings.HasPrefix(c.Node, "_c_") {
		r.find(Warning, c.Node, "is one half of a pair whose other half is gone: its process has lost the lock")
	}
	if c.Kind == zklock.KindTierlock && c.Ephemeral {
		for _, other := range r.Contenders[:i] {
			if other.Kind == c.Kind && other.Session == c.Session && other.Label == c.Label {
				r.find(Note, c.Node, "its session also made %s: two clients on one connection, or a node about to be deleted", other.Node)
				break
			}
		}
	}
	if c.LingerMS > 0 {
		r.find(Note, c.Node, "its process may keep it for %d ms while nobody there wants the lock", c.LingerMS)
	}
}

// explain says what a contender is and what it waits for.
func (r *Report) explain(c *Contender) string {
	who := sortOf(c.read).String()
	switch {
	case c.PID != 0:
		who += fmt.Sprintf(" on host %q, pid %d", c.Host, c.PID)
		if c.Label != "" {
			who += fmt.Sprintf(", label %q", c.Label)
		}
	case c.Content != "":
		who += fmt.Sprintf(", says %q", c.Content)
	}
	switch c.State {
	case Waits:
		return fmt.Sprintf("%s; waits for %d ahead of it, the nearest #%d", who, c.Ahead, c.behind)
	case Perhaps:
		return fmt.Sprintf("%s; waits for %d ahead of it, if set up so, and else holds the lock", who, c.Unsure)
	}
	if c.Ignored > 0 {
		return fmt.Sprintf("%s; holds the lock, past %d ahead of it", who, c.Ignored)
	}
	return who + "; holds the lock"
}

func (r *Report) examineOther(o Other) {
	grade, why := Note, "ignored by tierlock and kazoo"
	for i := range r.Contenders {
		c := &r.Contenders[i]
		switch {
		case c.Kind == zklock.KindZKLock && !knownToZKLock(o.Name):
			grade, why = Problem, "zk.Lock fails as long as it is there; tierlock and kazoo ignore it"
		case grade != Problem && curator(c.Kind) && curatorNumber(o.Name, c.Kind) < curatorNumber(c.Node, c.Kind):
			grade, why = Warning, fmt.Sprintf("Curator takes it for a number, and %s waits for it; tierlock and kazoo ignore it", c.Node)
		}
	}
	if o.Children > 0 {
		why += fmt.Sprintf("; has %d children", o.Children)
	}
	r.find(grade, o.Name, "no contender: %s", why)
}
