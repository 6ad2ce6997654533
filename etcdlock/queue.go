package etcdlock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// ValidatePath reports whether path may name a lock: not empty, no empty component, no slash at the end, valid UTF-8 without
// control characters, at most 1024 bytes. Unlike in ZooKeeper it need not begin with a slash; "/locks/x" and "locks/x" are
// different locks.
func ValidatePath(path string) error { return second.CheckPath("etcdlock", path, second.Components) }

// readMark begins the names of the keys of readers. Those of all others exclude everybody, whoever has made them, but for a
// writer whose value says that it has let readers in; see [store.share]. It is the name that tells, as etcd has conditions on
// ranges of names, and none on what is in many values.
const readMark = "read-"

// permitsMark is between the path of a semaphore and the names of its keys, which begin with the number of permits: it makes a queue
// of their own of them, and as it has an empty component, no lock is there.
const permitsMark = "//permits/"

// prefixOf is what all keys of a queue begin with.
func prefixOf(r queue.Ref) string {
	if r.Permits > 0 {
		return r.Path + permitsMark
	}
	return r.Path + "/"
}

// kindOf is what a key begins with, and those with which it may have what it wants at the same time.
func kindOf(r queue.Ref) string {
	switch {
	case r.Permits > 0:
		return prefixOf(r) + strconv.Itoa(r.Permits) + "-"
	case r.Reads:
		return prefixOf(r) + readMark
	}
	return prefixOf(r)
}

func keyOf(r queue.Ref) string { return kindOf(r) + r.ID }

// refOf is the contender of a key of this package.
func refOf(key string) queue.Ref {
	if path, name, ok := strings.Cut(key, permitsMark); ok {
		number, id, _ := strings.Cut(name, "-")
		permits, _ := strconv.Atoi(number)
		return queue.Ref{Path: path, ID: id, Permits: permits}
	}
	slash := strings.LastIndex(key, "/")
	name, reads := strings.CutPrefix(key[slash+1:], readMark)
	return queue.Ref{Path: key[:slash], ID: name, Reads: reads}
}

// owner is the value of a key.
type owner struct {
	second.Description
	Shared  bool          `json:"shared,omitempty"` // a writer that has let readers in
	Permits int           `json:"permits,omitempty"`
	Budget  second.Budget `json:"budget,omitempty"`
}

// put creates a key, or would write to it.
func (s *store) put(c queue.Command) clientv3.Op {
	o := owner{Description: s.self.Now(c.Linger), Budget: c.Budget}
	if c.Permits > 0 {
		o.Permits = c.Weight
	}
	return clientv3.OpPut(keyOf(c.Ref), second.Encode(o), clientv3.WithLease(leaseOf(c.Session)))
}

// ownerIn is what the process says that made a key of this value, if that is of this package.
func ownerIn(value []byte) (o owner, ours bool) {
	if json.Unmarshal(value, &o) != nil || o.Version != 1 {
		return owner{}, false
	}
	return o, true
}

// A place is a key in a queue. Lower tokens, which are create revisions, go first.
type place struct {
	second.Contender
	key      string
	modified int64
	ours     bool   // it is of this package
	value    string // if ours
}

// placesOf returns the contenders among keys with the prefix of a queue. Those of locks below, and of a semaphore, whose names have
// another slash, are none; all others are, whoever has created them.
func placesOf(prefix string, keys []*mvccpb.KeyValue) (places []place) {
	for _, kv := range keys {
		if isContender(prefix, kv) {
			places = append(places, placeOf(kv))
		}
	}
	return places
}

func isContender(prefix string, kv *mvccpb.KeyValue) bool {
	return !bytes.Contains(kv.Key[len(prefix):], []byte("/"))
}

func placeOf(kv *mvccpb.KeyValue) place {
	name := string(kv.Key[bytes.LastIndexByte(kv.Key, '/')+1:])
	o, ours := ownerIn(kv.Value)
	p := place{key: string(kv.Key), modified: kv.ModRevision, ours: ours, Contender: second.Contender{
		ID: second.Text(name), Token: kv.CreateRevision, Since: o.Time.UTC(),
		Shared: o.Shared || strings.HasPrefix(name, readMark), Asked: o.Revoke, Budget: o.Budget,
		Permits: o.Permits, Of: refOf(string(kv.Key)).Permits,
	}}
	o.Tell(&p.Contender)
	if p.Permits < 1 || p.Permits > p.Of { // it does not say; or it is for a lock
		p.Permits = p.Of
	}
	if ours {
		p.value = string(kv.Value)
	}
	return p
}

// viewOf is how a contender stands in a queue that is known up to a revision.
func viewOf(ref queue.Ref, revision int64, places []place) queue.View {
	v := queue.View{ID: ref.ID, Token: ref.Token, At: revision}
	key := keyOf(ref)
	if own := slices.IndexFunc(places, func(p place) bool { return p.key == key && p.Token == ref.Token }); own >= 0 {
		v.Stand(own, len(places), func(i int) *second.Contender { return &places[i].Contender })
	}
	return v
}

// read reads the queue, as it was at the revision that it returns.
func (s *store) read(ctx context.Context, prefix string) (revision int64, places []place, err error) {
	answer, err := s.client.Do(ctx, wholeQueue(prefix))
	if err != nil {
		return 0, nil, err
	}
	return answer.Get().Header.Revision, placesOf(prefix, answer.Get().Kvs), nil
}

func wholeQueue(prefix string) clientv3.Op {
	return clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
}

func (s *store) list(ctx context.Context, prefix string) (all []second.Contender, err error) {
	_, places, err := s.read(ctx, prefix)
	for _, p := range places {
		all = append(all, p.Contender)
	}
	queue.Waiting(all)
	return all, err
}

// A span is the keys from one up to another.
type span struct{ from, to string }

// rivals are where the keys are for which a contender waits, if they come before its own, or beside which there is to be none that
// wants permits.
func rivals(ref queue.Ref) []span {
	prefix, kind := prefixOf(ref), kindOf(ref)
	all := span{prefix, clientv3.GetPrefixRangeEnd(prefix)}
	if kind == prefix {
		return []span{all}
	}
	return []span{{all.from, kind}, {clientv3.GetPrefixRangeEnd(kind), all.to}}
}

// nobody are the conditions that there are no rivals.
func nobody(ref queue.Ref) (conditions []clientv3.Cmp) {
	for _, s := range rivals(ref) {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(s.from), "=", 0).WithRange(s.to))
	}
	return conditions
}

// reads are requests for the keys of rivals, and for a reader what these say.
func reads(ref queue.Ref, opts ...clientv3.OpOption) (ops []clientv3.Op) {
	if !ref.Reads {
		opts = append(opts, clientv3.WithKeysOnly())
	}
	for _, s := range rivals(ref) {
		ops = append(ops, clientv3.OpGet(s.from, append(slices.Clip(opts), clientv3.WithRange(s.to))...))
	}
	return ops
}

// heads read the first rival. If that lets readers in and there are more, those do not: only the first one in a queue can be a
// writer that does.
func heads(ref queue.Ref) []clientv3.Op {
	return reads(ref, clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(1))
}

// firstBy reports whether the answers to heads show that the contender waits for nobody. If not, it may yet be so.
func firstBy(heads []*etcdserverpb.ResponseOp, ref queue.Ref) bool {
	for _, head := range heads {
		rivals := head.GetResponseRange()
		switch {
		case len(rivals.Kvs) == 0 || rivals.Kvs[0].CreateRevision >= ref.Token:
		case !ref.Reads || !placeOf(rivals.Kvs[0]).Shared || rivals.More:
			return false
		}
	}
	return true
}

func created(ref queue.Ref) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(keyOf(ref)), "=", ref.Token)
}

// enter creates the key, behind all others, in the transaction that deletes the old one.
func (s *store) enter(ctx context.Context, c queue.Command) (v queue.View, removed queue.Removal, err error) {
	missing := c.Ref
	missing.Token = 0
	conditions, heads := []clientv3.Cmp{created(missing)}, heads(c.Ref)
	then := append([]clientv3.Op{s.put(c)}, heads...)
	if c.Old.ID != "" {
		conditions = append(conditions, created(c.Old))
		then = slices.Insert(then, 0, clientv3.OpDelete(keyOf(c.Old)))
	}
	own := clientv3.OpGet(keyOf(c.Ref), clientv3.WithKeysOnly())
	answer, err := s.client.Txn(ctx).If(conditions...).Then(then...).Else(append([]clientv3.Op{own}, heads...)...).Commit()
	if err != nil {
		return v, removed, err
	}
	c.Token = answer.Header.Revision
	if !answer.Succeeded {
		found := answer.Responses[0].GetResponseRange().Kvs
		if len(found) == 0 {
			return v, removed, errGone
		}
		// By an earlier request, which has deleted the old one most likely. But one for a former key of that name may be late.
		c.Token, removed = found[0].CreateRevision, queue.Kept
	} else if c.Old.ID != "" {
		s.names.put(c.Session, c.Old.ID)
	}
	first := firstBy(answer.Responses[len(answer.Responses)-len(heads):], c.Ref)
	return queue.View{ID: c.ID, Known: true, Token: c.Token, At: c.Token, Has: first, Reads: c.Reads}, removed, nil
}

// maxBelow is how many keys a try looks at for one that is a contender, and not that of a lock below this one.
const maxBelow = 64

// try creates the key on the condition that there are no rivals. Behind a writer that has let readers in, or with locks below this
// one, it takes two transactions.
func (s *store) try(ctx context.Context, c queue.Command) (v queue.View, err error) {
	rivals := reads(c.Ref, clientv3.WithLimit(maxBelow))
	answer, err := s.client.Txn(ctx).If(nobody(c.Ref)...).Then(s.put(c)).Else(rivals...).Commit()
	if err != nil {
		return v, err
	}
	if answer.Succeeded {
		token := answer.Header.Revision
		return queue.View{ID: c.ID, Known: true, Token: token, At: token, Has: true, Reads: c.Reads}, nil
	}
	for _, r := range answer.Responses {
		excludes := func(p place) bool { return !c.Reads || !p.Shared }
		if slices.ContainsFunc(placesOf(prefixOf(c.Ref), r.GetResponseRange().Kvs), excludes) {
			s.names.put(c.Session, c.ID)
			return v, second.ErrLocked
		}
	}
	// Nobody but contenders of locks below, and a writer that lets readers in, as far as that showed.
	if v, _, err = s.enter(ctx, c); err != nil || v.Has {
		return v, err
	}
	revision, places, err := s.read(ctx, prefixOf(c.Ref))
	c.Token = v.Token
	return viewOf(c.Ref, revision, places), err
}

// leave deletes the key that was created at the token, 0 for any.
func (s *store) leave(ctx context.Context, session string, ref queue.Ref) (removed queue.Removal, err error) {
	s.wishes.Delete(keyOf(ref))
	txn := s.client.Txn(ctx)
	if ref.Token != 0 {
		txn = txn.If(created(ref))
	}
	answer, err := txn.Then(clientv3.OpDelete(keyOf(ref))).Commit()
	switch {
	case err != nil:
		return removed, fmt.Errorf("delete %s: %w", keyOf(ref), err)
	case !answer.Succeeded:
		return queue.Missing, nil
	case ref.Token != 0:
		s.names.put(session, ref.ID)
	}
	return queue.Removed, nil
}

// share writes to the value of the key that it reads from now on. The create revision, and with it place and token, stay.
func (s *store) share(ctx context.Context, ref queue.Ref) (v queue.View, err error) {
	m := s.mirror(prefixOf(ref))
	if m == nil { // nobody follows: it is given up
		return v, context.Canceled
	}
	own, revision, err := s.mark(ctx, m.placeOf(ref), "shared", func(p place) bool { return p.Shared })
	switch {
	case err != nil:
		return v, err
	case own.Token != ref.Token:
		return queue.View{ID: ref.ID, Token: ref.Token, At: revision}, nil
	}
	return m.write(ref, own), nil
}

// ask writes to the keys of those that have the lock, in one transaction for each, that they are asked for it. It is nothing if
// nobody has the lock.
func (s *store) ask(ctx context.Context, path string) error {
	_, places, err := s.read(ctx, prefixOf(queue.Ref{Path: path}))
	if err != nil {
		return err
	}
	for _, p := range holders(places) {
		if !p.ours {
			return denied{fmt.Errorf("%s is not a key of this package, and its owner would not hear of it: %w",
				second.Text(p.key), errors.ErrUnsupported)}
		}
		if _, _, err := s.mark(ctx, p, "revoke", func(p place) bool { return p.Asked }); err != nil {
			return err
		}
	}
	return nil
}

// holders returns those of a queue that have the lock: the first one, and if that reads, those right behind it who read.
func holders(places []place) []place {
	together := min(len(places), 1)
	for together > 0 && together < len(places) && places[0].Shared && places[together].Shared {
		together++
	}
	return places[:together]
}

// mark sets a field in the value of a key until it is set, or another key, or none, is there. It returns what is there then, and at
// which revision. The condition of each write is that nothing was written since: else a mark that somebody else has put there
// would be lost. The key stays on its lease.
func (s *store) mark(ctx context.Context, p place, field string, set func(place) bool) (found place, revision int64, err error) {
	for token := p.Token; p.Token == token && !set(p); {
		value := second.Mark(p.value, field, "true")
		answer, err := s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(p.key), "=", p.modified)).
			Then(clientv3.OpPut(p.key, value, clientv3.WithIgnoreLease())).
			Else(clientv3.OpGet(p.key)).Commit()
		if err != nil {
			return p, 0, err
		}
		revision = answer.Header.Revision
		kv := &mvccpb.KeyValue{Key: []byte(p.key), Value: []byte(value), CreateRevision: token, ModRevision: revision}
		if !answer.Succeeded {
			if kvs := answer.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
				kv = kvs[0]
			} else {
				return place{}, revision, nil
			}
		}
		p = placeOf(kv)
	}
	return p, revision, nil
}
