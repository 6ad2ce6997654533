package etcdlock

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// ValidatePath returns nil if path can name a lock. A lock path is not empty, has no empty component and no slash at the end, and is at
// most 1024 bytes of UTF-8 without control characters. Unlike in ZooKeeper, the path need not begin with a slash; "/locks/x" and "locks/x"
// are different locks.
func ValidatePath(path string) error { return second.CheckPath("etcdlock", path, second.Components) }

// readMark begins the names of the keys of readers. Other keys of the queue exclude all contenders, whichever program has created them.
// The exception is a writer whose value says that it has let readers in; see [store.share]. The name has to show whether a contender
// reads, because etcd can put conditions on ranges of names, but not on the contents of many values.
const readMark = "read-"

// permitsMark stands between the path of a semaphore and the names of its keys, which begin with the number of permits. The keys are
// therefore a queue of their own, and because the path has an empty component, no lock can be there.
const permitsMark = "//permits/"

// numberKey is the key that stores the number of permits, if one was set. This key belongs to no contender.
func numberKey(prefix string) string { return prefix + "/of" }

// numberIn returns the number of permits that one of these keys stores, and 0 if none does.
func numberIn(prefix string, keys []*mvccpb.KeyValue) (n int) {
	for _, kv := range keys {
		if string(kv.Key) == numberKey(prefix) {
			n = numberOf(kv)
		}
	}
	return n
}

func numberOf(kv *mvccpb.KeyValue) int {
	n, _ := strconv.Atoi(string(kv.Value))
	return max(n, 0)
}

// number sets the number of permits in places: set, or if that is 0, the number in their keys.
func number(places []place, set int) {
	for i := range places {
		places[i].Of = cmp.Or(set, refOf(places[i].key).Permits)
	}
}

// prefixOf returns the prefix of all keys of a queue.
func prefixOf(r queue.Ref) string {
	if r.Permits > 0 {
		return r.Path + permitsMark
	}
	return r.Path + "/"
}

// kindOf returns the prefix of a contender's key, which is also that of the keys with which it can share the lock or the permits.
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

// refOf returns the contender of a key that this package has created.
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
	Shared  bool `json:"shared,omitempty"` // a writer that has let readers in
	Permits int  `json:"permits,omitempty"`
}

// put creates a contender's key, or overwrites it.
func (s *store) put(c queue.Command) clientv3.Op {
	o := owner{Description: s.self.Now(c.Linger)}
	if c.Permits > 0 {
		o.Permits = c.Weight
	}
	return clientv3.OpPut(keyOf(c.Ref), second.Encode(o), clientv3.WithLease(leaseOf(c.Session)))
}

// ownerIn returns the description in the value of a key, if this package has created the key. Other programs may write JSON of the same
// form. A description counts only in keys with a name of ours; otherwise foreign keys could let readers pass.
func ownerIn(name string, value []byte) (o owner, ours bool) {
	if !ownName(name) || json.Unmarshal(value, &o) != nil || o.Version != 1 {
		return owner{}, false
	}
	return o, true
}

// ownName reports whether a name ends like those of [store.Name].
func ownName(name string) bool {
	const length = 26 // of rand.Text
	own := len(name) - length
	if own < 0 || strings.Trim(name[own:], "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return false
	}
	before := name[:own]
	return before == "" || before == readMark || before[len(before)-1] == '-' && strings.Trim(before, "0123456789") == "-"
}

// A place is a key in a queue. Lower tokens, which are create revisions, go first.
type place struct {
	second.Contender
	key      string
	modified int64
	ours     bool // it is of this package
	value    string
}

// placesOf returns the contenders among the keys with the prefix of a queue, in the order of the queue. Keys with another slash in their
// names belong to locks below this path, or to a semaphore. All other keys are contenders, whichever program has created them.
func placesOf(prefix string, keys []*mvccpb.KeyValue) (places []place) {
	for _, kv := range keys {
		if isContender(prefix, kv) {
			places = append(places, placeOf(kv))
		}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.Token, b.Token) })
	number(places, numberIn(prefix, keys))
	return places
}

func isContender(prefix string, kv *mvccpb.KeyValue) bool {
	return !bytes.Contains(kv.Key[len(prefix):], []byte("/"))
}

func placeOf(kv *mvccpb.KeyValue) place {
	name := string(kv.Key[bytes.LastIndexByte(kv.Key, '/')+1:])
	o, ours := ownerIn(name, kv.Value)
	p := place{key: string(kv.Key), modified: kv.ModRevision, ours: ours, value: string(kv.Value), Contender: second.Contender{
		ID: second.Text(name), Token: kv.CreateRevision, Since: o.Time.UTC(),
		Shared: o.Shared || strings.HasPrefix(name, readMark), Asked: o.Revoke,
		Permits: o.Permits, Of: refOf(string(kv.Key)).Permits,
	}}
	o.Tell(&p.Contender)
	if p.Permits < 1 || p.Permits > p.Of { // it does not say; or it is for a lock
		p.Permits = p.Of
	}
	return p
}

// viewOf returns the state of a contender in a queue as of a revision.
func viewOf(ref queue.Ref, revision int64, places []place) queue.View {
	v := queue.View{ID: ref.ID, Token: ref.Token, At: revision}
	if own := find(places, ref); own >= 0 {
		v.Stand(own, len(places), func(i int) *second.Contender { return &places[i].Contender })
	}
	return v
}

// find returns the index of a contender among the places, and a negative number if it is not there.
func find(places []place, ref queue.Ref) int {
	key := keyOf(ref)
	of := func(p place) bool { return p.Token == ref.Token && p.key == key }
	// The binary search by token usually finds it at once, which matters because a process may look for all of its contenders.
	byToken := func(p place, token int64) int { return cmp.Compare(p.Token, token) }
	if i, ok := slices.BinarySearchFunc(places, ref.Token, byToken); ok && of(places[i]) {
		return i
	}
	return slices.IndexFunc(places, of)
}

// read reads the queue and the number of permits that was set, both at the revision that it returns.
func (s *store) read(ctx context.Context, prefix string) (revision int64, places []place, set int, err error) {
	known := s.past.known()
	answer, err := s.client.Do(ctx, wholeQueue(prefix))
	if err != nil {
		return 0, nil, 0, err
	}
	revision, keys := answer.Get().Header.Revision, answer.Get().Kvs
	s.hears(known, revision)
	return revision, placesOf(prefix, keys), numberIn(prefix, keys), nil
}

func wholeQueue(prefix string) clientv3.Op { return clientv3.OpGet(prefix, clientv3.WithPrefix()) }

func (s *store) list(ctx context.Context, prefix string) (all []second.Contender, err error) {
	_, places, _, err := s.read(ctx, prefix)
	for _, p := range places {
		all = append(all, p.Contender)
	}
	queue.Waiting(all)
	return all, err
}

// A span is the keys from one up to another.
type span struct{ from, to string }

// rivals returns the ranges of the keys for which a contender may have to wait.
func rivals(ref queue.Ref) []span {
	if prefix := prefixOf(ref); !ref.Reads {
		return []span{{prefix, clientv3.GetPrefixRangeEnd(prefix)}}
	}
	return others(ref)
}

// others returns the ranges of the keys in a queue that are of another kind.
func others(ref queue.Ref) []span {
	prefix, kind := prefixOf(ref), kindOf(ref)
	return []span{{prefix, kind}, {clientv3.GetPrefixRangeEnd(kind), clientv3.GetPrefixRangeEnd(prefix)}}
}

// nobody returns the conditions that no key was created in the ranges after a revision.
func nobody(spans []span, since int64) (conditions []clientv3.Cmp) {
	for _, s := range spans {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(s.from), "<", since+1).WithRange(s.to))
	}
	return conditions
}

// reads returns the requests that read the contender's own key and its rivals. Where only the values show whether rivals block it, these
// are read as well.
func reads(ref queue.Ref) (ops []clientv3.Op) {
	var opts []clientv3.OpOption
	switch {
	case ref.Reads:
		ops = append(ops, clientv3.OpGet(keyOf(ref))) // where none of its rivals are
	case ref.Permits == 0:
		opts = append(opts, clientv3.WithKeysOnly())
	}
	for _, s := range rivals(ref) {
		ops = append(ops, clientv3.OpGet(s.from, append(slices.Clip(opts), clientv3.WithRange(s.to))...))
	}
	return ops
}

// keysIn returns all keys that a transaction has read.
func keysIn(answer *clientv3.TxnResponse) (keys []*mvccpb.KeyValue) {
	for _, r := range answer.Responses {
		keys = append(keys, r.GetResponseRange().GetKvs()...)
	}
	return keys
}

func created(ref queue.Ref) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(keyOf(ref)), "=", ref.Token)
}

// enter creates the key at the tail, in the transaction that deletes the old one. A key for permits is not created if the queue has keys
// with another number of permits.
func (s *store) enter(ctx context.Context, c queue.Command) (v queue.View, removed queue.Removal, err error) {
	put, look := s.put(c), reads(c.Ref)
	conditions, then := []clientv3.Cmp{created(c.Ref)}, []clientv3.Op{put} // it has no token yet, as no key has that is not there
	prefix := prefixOf(c.Ref)
	_, set := s.numbers.Load(prefix)
	switch {
	case set:
		conditions = append(conditions, clientv3.Compare(clientv3.Value(numberKey(prefix)), "=", strconv.Itoa(c.Permits)))
	case c.Permits > 0:
		conditions = append(conditions, nobody(others(c.Ref), 0)...)
	}
	if c.Old.ID != "" {
		conditions, then = append(conditions, created(c.Old)), append(then, clientv3.OpDelete(keyOf(c.Old)))
	}
	answer, err := s.commit(s.client.Txn(ctx).If(conditions...).Then(append(then, look...)...).Else(look...))
	if err != nil {
		return v, removed, err
	}
	keys := keysIn(answer)
	places := placesOf(prefix, keys)
	own := slices.IndexFunc(places, func(p place) bool { return p.key == keyOf(c.Ref) })
	if own < 0 {
		err = s.sameNumber(c.Ref, keys)
		if _, now := s.numbers.Load(prefix); err == nil && now != set {
			return s.enter(ctx, c) // on the other condition
		}
		return v, removed, cmp.Or(err, errGone)
	}
	switch {
	case answer.Succeeded:
		s.wrote(put, answer.Header.Revision)
		if c.Old.ID != "" {
			s.written.Delete(keyOf(c.Old))
			s.names.put(c.Session, c.Old.ID)
		}
	case s.past.back.Load(), c.Permits > 0 && places[own].Permits != c.Weight:
		s.suspect()
		return v, removed, errGone // a key of ours that was deleted, and is back
	default:
		// An earlier request has created the key, and has most likely deleted the old one. But a request for an earlier key of the same name
		// may also have been late, so the result is Kept.
		removed = queue.Kept
	}
	c.Token = places[own].Token
	v = viewOf(c.Ref, answer.Header.Revision, places)
	if !c.Reads && c.Permits == 0 { // only keys were read: the mirror tells what they say, also as it was before this
		v.At, v.Ahead, v.Nearest = c.Token, 0, second.Contender{}
	}
	return v, removed, nil
}

// otherNumber is the error that there is another number of permits than the one that a contender has entered with.
type otherNumber struct {
	error
	permits int // that there are
}

func (o otherNumber) Unwrap() error { return o.error }

// sameNumber returns an error if a contender wants permits and another number applies: the one that was set, or else the one in any key.
func (s *store) sameNumber(ref queue.Ref, keys []*mvccpb.KeyValue) error {
	if ref.Permits == 0 {
		return nil
	}
	prefix := prefixOf(ref)
	permits := numberIn(prefix, keys)
	if permits == 0 {
		s.numbers.Delete(prefix)
	} else {
		s.numbers.Store(prefix, struct{}{})
	}
	for i := 0; i < len(keys) && permits == 0; i++ {
		if n := refOf(string(keys[i].Key)).Permits; n < 1 {
			return denied{fmt.Errorf("%s is among the keys of the semaphore but not one of them; delete it", second.Text(string(keys[i].Key)))}
		} else if n != ref.Permits {
			permits = n
		}
	}
	if permits == 0 || permits == ref.Permits {
		return nil
	}
	return otherNumber{fmt.Errorf("%w: there are %d, not %d", second.ErrTooManyPermits, permits, ref.Permits), permits}
}

// resize stores the number of permits.
func (s *store) resize(ctx context.Context, ref queue.Ref) error {
	_, err := s.commit(s.client.Txn(ctx).Then(clientv3.OpPut(numberKey(prefixOf(ref)), strconv.Itoa(ref.Permits))))
	return err
}

// try creates the key on the condition that no rival was created after a revision at which none blocked it. try first tries with the
// condition that there was never one. etcd has no condition on many values, but keys that were read at that revision can only ask for
// less since then.
func (s *store) try(ctx context.Context, c queue.Command) (v queue.View, err error) {
	put := s.put(c)
	own := placeOf(&mvccpb.KeyValue{Key: put.KeyBytes(), Value: put.ValueBytes(), CreateRevision: math.MaxInt64})
	entered := c.Ref
	entered.Token = own.Token
	for since, asked := int64(0), 1; ; asked++ {
		conditions := nobody(rivals(c.Ref), since)
		if c.Permits > 0 { // nor is there another number since
			conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(numberKey(prefixOf(c.Ref))), "<", since+1))
		}
		answer, err := s.commit(s.client.Txn(ctx).If(conditions...).Then(put).Else(reads(c.Ref)...))
		if err != nil {
			return v, err
		}
		since = answer.Header.Revision
		if answer.Succeeded {
			s.wrote(put, since)
			return queue.View{ID: c.ID, Known: true, Token: since, At: since, Has: true, Reads: c.Reads}, nil
		}
		keys := keysIn(answer)
		if err = s.sameNumber(c.Ref, keys); err != nil {
			return v, err
		}
		if !viewOf(entered, since, append(placesOf(prefixOf(c.Ref), keys), own)).Has {
			s.names.put(c.Session, c.ID)
			return v, second.ErrLocked
		}
		if c.Permits == 0 && asked > 1 { // the conditions count the keys of locks below: while these are in use it has no end
			v, _, err = s.enter(ctx, c) // behind those who do not seem to be in the way, and it tells whether they are
			return v, err
		}
	}
}

// leave deletes the key that was created at the token, 0 for any.
func (s *store) leave(ctx context.Context, session string, ref queue.Ref) (removed queue.Removal, err error) {
	s.written.Delete(keyOf(ref))
	txn := s.client.Txn(ctx)
	if ref.Token != 0 {
		txn = txn.If(created(ref))
	}
	answer, err := s.commit(txn.Then(clientv3.OpDelete(keyOf(ref))))
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

// remove deletes the key with a token, whichever process or library created it. remove finds the key by the create revision, since the
// displayed name may contain characters that [second.Text] has replaced.
func (s *store) remove(ctx context.Context, ref queue.Ref) (queue.Removal, error) {
	prefix := prefixOf(ref)
	found, err := s.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithMinCreateRev(ref.Token), clientv3.WithMaxCreateRev(ref.Token))
	if err != nil {
		return queue.Kept, fmt.Errorf("find the key with revision %d below %s: %w", ref.Token, prefix, err)
	}
	i := slices.IndexFunc(found.Kvs, func(kv *mvccpb.KeyValue) bool { return isContender(prefix, kv) })
	if i < 0 {
		return queue.Missing, nil
	}
	key := string(found.Kvs[i].Key)
	same := clientv3.Compare(clientv3.CreateRevision(key), "=", ref.Token)
	answer, err := s.commit(s.client.Txn(ctx).If(same).Then(clientv3.OpDelete(key)))
	switch {
	case err != nil:
		return queue.Kept, fmt.Errorf("delete %s: %w", second.Text(key), err)
	case !answer.Succeeded:
		return queue.Missing, nil
	}
	return queue.Removed, nil
}

// ask writes the request to the holders' keys, in one transaction for each key. If the lock is free, it does nothing.
func (s *store) ask(ctx context.Context, path string) error {
	_, places, _, err := s.read(ctx, prefixOf(queue.Ref{Path: path}))
	if err != nil {
		return err
	}
	for _, p := range places {
		ref := refOf(p.key)
		ref.Token = p.Token
		if !viewOf(ref, 0, places).Has { // nor has anybody behind it
			return nil
		}
		if !p.ours {
			return denied{fmt.Errorf("%s belongs to another library, which does not read requests: %w",
				second.Text(p.key), errors.ErrUnsupported)}
		}
		if p.Asked {
			continue
		}
		if _, _, err := s.mark(ctx, ref, p, "revoke", "true", func(p place) bool { return p.Asked }); err != nil {
			return err
		}
	}
	return nil
}

// wrote records what was written to a key, for the next change of it.
func (s *store) wrote(put clientv3.Op, revision int64) {
	key := string(put.KeyBytes())
	s.written.Store(key, placeOf(&mvccpb.KeyValue{
		Key: put.KeyBytes(), Value: put.ValueBytes(), CreateRevision: revision, ModRevision: revision,
	}))
}

// never is a revision at which no key was written.
const never = -1

// change sets a field in the value of a contender's key. If only this process has written to the key, its content is known and need not
// be read. The create revision stays the same, and therefore the place and the token, too.
func (s *store) change(ctx context.Context, c queue.Command, field, to string, set func(place) bool) (queue.View, error) {
	known := place{modified: never} // it is read first
	if p, ok := s.written.Load(keyOf(c.Ref)); ok {
		known = p.(place)
	}
	found, v, err := s.mark(ctx, c.Ref, known, field, to, set)
	if v.Known {
		s.written.Store(found.key, found)
	}
	return v, err
}

// mark sets a field in the value of a key. mark repeats the write until the field is set, or the key does not exist any more. mark
// returns the place as it is then, and the state of the contender. Each write requires that the key was not written since its content was
// read; otherwise a mark from another process would be lost. The key stays attached to its lease.
func (s *store) mark(ctx context.Context, ref queue.Ref, known place, field, to string, set func(place) bool) (
	found place, v queue.View, err error) {
	prefix, key := prefixOf(ref), keyOf(ref)
	for {
		if known.ours && set(known) { // by another request of ours: to write what this one says could take that back
			known.modified = never
		}
		unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", known.modified)
		put, read := clientv3.OpPut(key, second.Mark(known.value, field, to), clientv3.WithIgnoreLease()), wholeQueue(prefix)
		answer, err := s.commit(s.client.Txn(ctx).If(unchanged).Then(put, read).Else(read))
		if err != nil {
			return found, v, err
		}
		revision, places := answer.Header.Revision, placesOf(prefix, keysIn(answer))
		i := find(places, ref)
		switch {
		case i < 0:
			return found, viewOf(ref, revision, places), nil
		case set(places[i]):
			return places[i], viewOf(ref, revision, places), nil
		case !places[i].ours:
			return found, v, denied{fmt.Errorf("another program has written to %s", second.Text(key))}
		}
		known = places[i]
	}
}
