package etcdlock

import (
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/second"
)

// readMark begins the names of the keys of readers. Those of all others exclude everybody, whoever
// has made them, but for a writer whose value says that it has let readers in; see
// [contender.Share]. It is the name that tells, as etcd has conditions on ranges of names, and none
// on what is in many values.
const readMark = "read-"

func markOf(mode second.Mode) string {
	if mode == second.Reading {
		return readMark
	}
	return ""
}

// A span is the keys from one up to another.
type span struct{ from, to string }

// rivals are where the keys are for which a contender waits, if they come before its own.
func (l *claim) rivals() []span {
	all := span{l.prefix(), clientv3.GetPrefixRangeEnd(l.prefix())}
	if l.mode != second.Reading {
		return []span{all}
	}
	readers := l.prefix() + readMark
	return []span{{all.from, readers}, {clientv3.GetPrefixRangeEnd(readers), all.to}}
}

// reads are requests for the keys of rivals, and for a reader what these say.
func (l *claim) reads(opts ...clientv3.OpOption) []clientv3.Op {
	if l.mode != second.Reading {
		opts = append(opts, clientv3.WithKeysOnly())
	}
	var ops []clientv3.Op
	for _, s := range l.rivals() {
		ops = append(ops, clientv3.OpGet(s.from, append(slices.Clip(opts), clientv3.WithRange(s.to))...))
	}
	return ops
}

// heads read the first rival. If that lets readers in and there are more, those do not: only the
// first one in a queue can be a writer that does.
func (l *claim) heads() []clientv3.Op {
	return l.reads(clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(1))
}

// firstBy reports whether the answers to heads show that it waits for nobody. If not, it may yet be so.
func (c *contender) firstBy(heads []*etcdserverpb.ResponseOp) bool {
	for _, head := range heads {
		if !c.firstAmong(head.GetResponseRange()) {
			return false
		}
	}
	return true
}

func (c *contender) firstAmong(rivals *etcdserverpb.RangeResponse) bool {
	for _, kv := range rivals.Kvs {
		if kv.CreateRevision >= c.token {
			return true
		}
		if c.excludes(placeOf(kv)) {
			return false
		}
	}
	return !rivals.More
}

// nobody are the conditions that there are no rivals.
func (l *claim) nobody() []clientv3.Cmp {
	var conditions []clientv3.Cmp
	for _, s := range l.rivals() {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(s.from), "=", 0).WithRange(s.to))
	}
	return conditions
}

// excludes reports whether the contender and the one at a place cannot have the lock at the same time.
func (c *contender) excludes(p place) bool { return !c.shared.Load() || !p.reads }
