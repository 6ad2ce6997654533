package zkinspect

import (
	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// examineMixture adds findings about sorts of locks that do not exclude each other.
func (r examination) examineMixture() {
	sorts := kinds(r.Queue)
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

func (r examination) examineTwo(a, b sort) {
	readers := a.kind == zkqueue.KindKazoo && b.kazooRead()
	switch a.waitsFor(b) {
	case no:
		r.Find(inspect.Problem, "", "%s does not wait for %s: on this path they do not exclude each other%s", a, b, remedy(a, b))
	case perhaps:
		switch {
		case readers:
			r.Find(inspect.Note, "", "kazoo's Lock does not wait for kazoo's readers, but its WriteLock does; the names of their nodes are the same")
		case a.kind == zkqueue.KindMutex:
			r.Find(inspect.Warning, "", "%s was created by an unknown library, which may not wait for %s; "+
				"both can then have the lock at the same time", a, b)
		default:
			r.Find(inspect.Warning, "", `%s waits for %s only with extra_lock_patterns=["lock-"], which its name does not show%s`,
				a, b, remedy(a, b))
		}
	}
	if a.kind == zkqueue.KindKazooRead && b.pair && b.kazoo() {
		r.Find(inspect.Note, "", "before kazoo 2.9.0, kazoo's ReadLock can deadlock with %s", b)
	}
}

// remedy returns advice for two sorts of contenders. Contenders of sort a do not wait for contenders of sort b.
func remedy(a, b sort) string {
	switch {
	case a.kind == zkqueue.KindRead || a.kind == zkqueue.KindWrite:
		return "; give Curator's read/write lock a path of its own"
	case a.kind == kindCurator && (b.curatorWrite() || b.curatorRead()):
		return "; give the reader/writer lock a path of its own"
	case a.kind != kindCurator && (b.kind == kindTierlock || b.kind == kindTierlockWrite):
		return "; or use zklock.WithKazoo in every tierlock process"
	}
	return ""
}
