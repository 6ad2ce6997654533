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

// readMark is the beginning of the name of a reader's key. Any other key in the queue excludes all other contenders, even if another
// program has created it. There is one exception: the value of a writer's key may say that the writer has let readers in. The name has to
// show whether a contender is a reader, because etcd can put conditions on ranges of names, but not on the contents of many values.
const readMark = "read-"

// permitsMark is the part of a key between the path of a semaphore and the name. Each name begins with the total number of permits. The
// keys of a semaphore therefore form a separate queue. No lock can have keys there, because permitsMark has an empty path component.
const permitsMark = "//permits/"

// numberKey returns the key that stores the total number of permits, if a Resize has set one. This key belongs to no contender.
func numberKey(prefix string) string { return prefix + "/of" }

// numberIn returns the total number of permits in the value of the number key, and 0 if that key is not among keys.
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

// number sets Of in all places to set, the total that a Resize has stored. If set is 0, no Resize has stored one, and Of is the number in
// the key of each place.
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

// kindOf returns the part of a contender's key before its ID. All readers of a lock have the same kind. All contenders of a semaphore that
// name the same total number of permits have the same kind, too.
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

// refOf returns the Ref of the contender whose key is given. This package has created that key.
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

// An owner is the content of a key's value, as JSON.
type owner struct {
	second.Description
	Shared  bool `json:"shared,omitempty"` // a writer that has let readers in
	Permits int  `json:"permits,omitempty"`
}

// put returns the operation that creates a contender's key.
func (s *store) put(c queue.Command) clientv3.Op {
	o := owner{Description: s.self.Now(c.Linger)}
	if c.Permits > 0 {
		o.Permits = c.Weight
	}
	return clientv3.OpPut(keyOf(c.Ref), second.Encode(o), clientv3.WithLease(leaseOf(c.Session)))
}

// ownerIn returns the description in the value of a key, if the name shows that this package has created the key. Another program may write
// JSON of the same form to a key of its own. If that counted, the key of another program could let readers in.
func ownerIn(name string, value []byte) (o owner, ours bool) {
	if !ownName(name) || json.Unmarshal(value, &o) != nil || o.Version != 1 {
		return owner{}, false
	}
	return o, true
}

// ownName reports whether a name has the form of the names that this package creates, which end with a name of [store.Name].
func ownName(name string) bool {
	const length = 26 // the length of a result of rand.Text
	own := len(name) - length
	if own < 0 || strings.Trim(name[own:], "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return false
	}
	before := name[:own]
	return before == "" || before == readMark || before[len(before)-1] == '-' && strings.Trim(before, "0123456789") == "-"
}

// A place is a key in a queue. Its token is the create revision of the key. The queue is ordered by token, the lowest first.
type place struct {
	second.Contender
	key      string
	modified int64
	ours     bool // this package has created the key
	value    string
}

// placesOf returns the contenders among keys, in the order of the queue. All of the keys begin with the prefix of the queue. A key with
// another slash after the prefix belongs to a lock below this path, or to a semaphore. Every other key is a contender, even if another
// program has created it.
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
	if p.Permits < 1 || p.Permits > p.Of { // the value does not say how many permits it wants; or the key is for a lock
		p.Permits = p.Of
	}
	return p
}

// viewOf returns the view of a contender. places are the contenders of the queue at the given revision.
func viewOf(ref queue.Ref, revision int64, places []place) queue.View {
	v := queue.View{ID: ref.ID, Token: ref.Token, At: revision}
	if own := find(places, ref); own >= 0 {
		v.Stand(own, len(places), func(i int) *second.Contender { return &places[i].Contender })
	}
	return v
}

// find returns the index of a contender in places, and a negative number if the contender is not there.
func find(places []place, ref queue.Ref) int {
	key := keyOf(ref)
	of := func(p place) bool { return p.Token == ref.Token && p.key == key }
	// The binary search by token usually finds the contender. It is fast, which matters if a process has many contenders in one queue.
	byToken := func(p place, token int64) int { return cmp.Compare(p.Token, token) }
	if i, ok := slices.BinarySearchFunc(places, ref.Token, byToken); ok && of(places[i]) {
		return i
	}
	return slices.IndexFunc(places, of)
}

// read returns the contenders of a queue, and the total number of permits if a Resize has set one. Both are as of the returned revision.
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

// A span is a range of keys. It includes from, but not to.
type span struct{ from, to string }

// rivals returns the ranges of the keys that may make a contender wait.
func rivals(ref queue.Ref) []span {
	if prefix := prefixOf(ref); !ref.Reads {
		return []span{{prefix, clientv3.GetPrefixRangeEnd(prefix)}}
	}
	return others(ref)
}

// others(ref) returns the ranges of keys in a queue, without the keys of the contender's own kind; see kindOf.
func others(ref queue.Ref) []span {
	prefix, kind := prefixOf(ref), kindOf(ref)
	return []span{{prefix, kind}, {clientv3.GetPrefixRangeEnd(kind), clientv3.GetPrefixRangeEnd(prefix)}}
}

// noneSince returns the transaction conditions that no existing key in the ranges was created after the revision since.
func noneSince(spans []span, since int64) (conditions []clientv3.Cmp) {
	for _, s := range spans {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(s.from), "<", since+1).WithRange(s.to))
	}
	return conditions
}

// reads(ref) returns the operations that read the contender's own key and the keys of its rivals. If only the values show whether the
// rivals block the contender, the operations read the values, too.
func reads(ref queue.Ref) (ops []clientv3.Op) {
	var opts []clientv3.OpOption
	switch {
	case ref.Reads:
		ops = append(ops, clientv3.OpGet(keyOf(ref))) // the ranges of a reader's rivals do not include its own key
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

// enter creates the key of a contender, which is then the last one in the queue. If there is an old contender, the same transaction deletes
// its key. The key of a contender that wants permits is not created if another total number of permits applies.
func (s *store) enter(ctx context.Context, c queue.Command) (v queue.View, removed queue.Removal, err error) {
	put, look := s.put(c), reads(c.Ref)
	conditions, then := []clientv3.Cmp{created(c.Ref)}, []clientv3.Op{put} // token 0: the key must not exist
	prefix := prefixOf(c.Ref)
	_, set := s.numbers.Load(prefix)
	switch {
	case set:
		conditions = append(conditions, clientv3.Compare(clientv3.Value(numberKey(prefix)), "=", strconv.Itoa(c.Permits)))
	case c.Permits > 0:
		conditions = append(conditions, noneSince(others(c.Ref), 0)...)
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
			return s.enter(ctx, c) // tried again, because the condition on the number of permits depends on whether a Resize has set one
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
		return v, removed, errGone // the key was deleted before, and exists again since etcd was set back
	default:
		// An earlier try of this command has most likely created the key, and has deleted the old one. But the key may also come from a late
		// command for an earlier contender of the same name. Therefore the result is Kept.
		removed = queue.Kept
	}
	c.Token = places[own].Token
	v = viewOf(c.Ref, answer.Header.Revision, places)
	if !c.Reads && c.Permits == 0 { // only keys were read, without values; the mirror reads them and reports how many contenders are ahead
		v.At, v.Ahead, v.Nearest = c.Token, 0, second.Contender{}
	}
	return v, removed, nil
}

// otherNumber is the error that the total number of permits is not the one with which a contender tried to enter.
type otherNumber struct {
	error
	permits int // the total that applies
}

func (o otherNumber) Unwrap() error { return o.error }

// sameNumber returns an error if a contender wants permits, and names another total number than the one that applies. The number that a
// Resize has set applies. If no Resize has set one, the number in the keys of the present contenders applies.
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
			return denied{fmt.Errorf("the key %s is in the queue of the semaphore, but is not an entry of the queue; delete the key",
				second.Text(string(keys[i].Key)))}
		} else if n != ref.Permits {
			permits = n
		}
	}
	if permits == 0 || permits == ref.Permits {
		return nil
	}
	return otherNumber{fmt.Errorf("%w: the number in the store is %d, not %d", second.ErrTooManyPermits, permits, ref.Permits), permits}
}

// resize stores the total number of permits.
func (s *store) resize(ctx context.Context, ref queue.Ref) error {
	_, err := s.commit(s.client.Txn(ctx).Then(clientv3.OpPut(numberKey(prefixOf(ref)), strconv.Itoa(ref.Permits))))
	return err
}

// try creates the key of a contender if no rival blocks it. etcd has no condition on the contents of many values. The first transaction
// therefore requires that there is no rival at all. If there are rivals, try reads them. If none of them blocks the contender, the second
// transaction requires that no rival was created after the revision of that read. Since that read, a rival can only have reduced the number
// of permits that it asks for.
func (s *store) try(ctx context.Context, c queue.Command) (v queue.View, err error) {
	put := s.put(c)
	own := placeOf(&mvccpb.KeyValue{Key: put.KeyBytes(), Value: put.ValueBytes(), CreateRevision: math.MaxInt64})
	entered := c.Ref
	entered.Token = own.Token
	for since, asked := int64(0), 1; ; asked++ {
		conditions := noneSince(rivals(c.Ref), since)
		if c.Permits > 0 { // the total number of permits must not have changed either, since the read
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
		if c.Permits == 0 && asked > 1 { // the ranges include keys of locks below this path, so busy locks there can make each try fail
			v, _, err = s.enter(ctx, c) // enters the queue unconditionally; the view then shows whether a rival blocks the contender
			return v, err
		}
	}
}

// leave deletes the key of a contender if its create revision is the token of ref. If that token is 0, it deletes the key in any case.
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

// remove deletes the key whose create revision is the token of ref, even if another process or library created it. It does not use the name
// in ref, because [second.Text] may have replaced characters of that name.
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

// ask writes the request to give the lock up into the holders' keys, with one transaction for each key. If the lock is free, ask does
// nothing.
func (s *store) ask(ctx context.Context, path string) error {
	_, places, _, err := s.read(ctx, prefixOf(queue.Ref{Path: path}))
	if err != nil {
		return err
	}
	for _, p := range places {
		ref := refOf(p.key)
		ref.Token = p.Token
		if !viewOf(ref, 0, places).Has { // the contenders behind it do not have the lock either
			return nil
		}
		if !p.ours {
			return denied{fmt.Errorf("the key %s belongs to another library, which ignores requests to release the lock: %w",
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

// wrote records what put has written to a key, so that the next change of the key need not read it.
func (s *store) wrote(put clientv3.Op, revision int64) {
	key := string(put.KeyBytes())
	s.written.Store(key, placeOf(&mvccpb.KeyValue{
		Key: put.KeyBytes(), Value: put.ValueBytes(), CreateRevision: revision, ModRevision: revision,
	}))
}

// never is a revision that no key has. A condition on it fails, so the transaction reads the key.
const never = -1

// change sets a field in the value of a contender's key. If only this process has written to the key, its content is known and is not read
// first. The create revision of the key stays the same, so the contender keeps its place and its token.
func (s *store) change(ctx context.Context, c queue.Command, field, to string, set func(place) bool) (queue.View, error) {
	known := place{modified: never} // makes mark read the key first
	if p, ok := s.written.Load(keyOf(c.Ref)); ok {
		known = p.(place)
	}
	found, v, err := s.mark(ctx, c.Ref, known, field, to, set)
	if v.Known {
		s.written.Store(found.key, found)
	}
	return v, err
}

// mark sets a field in the value of a key. It repeats the write until the field is set, or the key does not exist any more. It then returns
// the present place and view of the contender. Each write requires that no process has written to the key since it was read. Otherwise the
// mark of another process could be overwritten. The key stays attached to its lease.
func (s *store) mark(ctx context.Context, ref queue.Ref, known place, field, to string, set func(place) bool) (
	found place, v queue.View, err error) {
	prefix, key := prefixOf(ref), keyOf(ref)
	for {
		if known.ours && set(known) { // known may be out of date: another request of this process may have changed the field
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
			return found, v, denied{fmt.Errorf("another program has written to the key %s", second.Text(key))}
		}
		known = places[i]
	}
}
