package zkinspect

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// examineSemaphore adds findings about permits, and about contenders that cannot share a path with permits.
func (r examination) examineSemaphore(content string) {
	s := r.Semaphore
	if s == nil {
		r.examineKazooSemaphore(content)
		return
	}
	r.Find(inspect.OK, "", "a semaphore, %s, %d in the queue for permits; tierlock doctor %s examines that queue",
		s.Permits, len(s.Queue), join(r.Path, turnChild))
	number, marked := strings.CutPrefix(content, zkqueue.PermitsMark)
	switch {
	case marked && s.All == 0:
		r.Find(inspect.Problem, "", "the number of permits is \"%s\", so no tierlock process can take permits; set it with tierlock permits",
			second.Text(number))
	case !marked:
		r.Find(inspect.Note, "", "the path does not store the number of permits, as with Curator: each client uses its own number")
	}
	if s.All > 0 && s.InUse > s.All {
		r.Find(inspect.Problem, "", "more permits are in use than exist: some client uses a different number")
	}
	if len(r.Contenders) > 0 {
		r.Find(inspect.Problem, "", "a lock and a semaphore use this path, but do not exclude each other; give each a path of its own")
	}
	r.examineKazooSemaphore(content)
	for i := range s.Shares {
		r.examineShare(&s.Shares[i])
	}
}

func (r examination) examineShare(s *inspect.Share) {
	child := join(leasesChild, s.Nodes[0])
	r.Find(inspect.OK, child, "%s: %s", inspect.CountPermits(s.Count), who(s))
	switch {
	case !s.Readable:
		r.Find(inspect.Warning, child, "cannot be read with these credentials: its owner and session are unknown")
	case !s.Ephemeral:
		r.Find(inspect.Problem, child, "belongs to no session: its permit stays taken; if no process owns it, tierlock break %s -token %d",
			r.Path, s.Tokens[0])
	}
	for _, node := range s.Nodes {
		if !leaseNode.MatchString(node) {
			r.Find(inspect.Warning, join(leasesChild, node), "not a node of a known semaphore; it takes up a permit, as every child does")
		}
	}
}

// examineKazooSemaphore adds a finding if the content of the path is a number.
func (r examination) examineKazooSemaphore(content string) {
	if _, err := strconv.Atoi(strings.TrimSpace(content)); err != nil {
		return
	}
	grade := inspect.Note
	if len(r.Contenders) > 0 || r.Semaphore != nil {
		grade = inspect.Warning
	}
	r.Find(grade, "", "the path contains the number \"%s\", as kazoo's Semaphore writes it: kazoo's Semaphore cannot share a path with "+
		"locks or semaphores of other libraries, and tierlock's semaphore refuses the path", second.Text(content))
}

func who(s *inspect.Share) string {
	switch {
	case s.PID != 0 || s.Host != "":
		return strings.TrimSpace(fmt.Sprintf(`host "%s", pid %d, label "%s"`, s.Host, s.PID, s.Label))
	case s.Content != "":
		return fmt.Sprintf(`says "%s"`, s.Content)
	}
	return "has no description"
}
