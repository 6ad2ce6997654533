package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// A semaphore has the layout of Curator's InterProcessSemaphoreV2: below its path, whoever takes
// permits holds the lock "locks", and each permit that is taken is an ephemeral child of "leases".
// All children there count, whoever made them.
type semaphore struct {
	*Client
	path     string // on the server
	permits  int
	locks    *Lock
	leases   *Lock       // the home of the permits' nodes, which nobody queues for
	unmarked atomic.Bool // the number may not be written
}

func (t secondTier) Semaphore(path string, permits int, o second.Options) (second.Semaphore, error) {
	if err := ValidatePath(path); err != nil {
		return nil, err
	}
	queue, err := t.Claim(path+"/locks", second.Options{Own: o.Own})
	if err != nil {
		return nil, err
	}
	locks := queue.(claim).lock
	leases := *locks
	leases.path = parentOf(locks.path) + "/leases"
	return &semaphore{Client: t.Client, path: parentOf(locks.path), permits: permits, locks: locks, leases: &leases}, nil
}

func (s *semaphore) Equal(other second.Semaphore) bool {
	o, ok := other.(*semaphore)
	return ok && s.permits == o.permits && s.locks.equal(o.locks)
}

// Acquire begins again at the tail of the queue when its place there is lost.
func (s *semaphore) Acquire(ctx context.Context, d *second.Demand) ([]second.Permit, error) {
	ctx, end := s.link.Scope(ctx)
	defer end()
	for pace := retry.New(); ; {
		turn, err := s.locks.acquire(ctx, &d.Wait)
		if err != nil {
			return nil, err
		}
		taken, err := s.task(ctx, func() ([]*Node, error) { return s.newVigil(turn, d).keep(ctx) })
		if !errors.Is(err, errGone) {
			return s.granted("acquire", taken, err)
		}
		if err := retry.Pause(ctx, pace.NextBackOff()); err != nil {
			return s.granted("acquire", nil, s.link.Explain(err))
		}
	}
}

// TryAcquire looks before it writes.
func (s *semaphore) TryAcquire(ctx context.Context, k int) ([]second.Permit, error) {
	if err := s.Err(); err != nil {
		return s.granted("try", nil, err)
	}
	ctx, end := s.link.Scope(ctx)
	defer end()
	if _, err := s.task(ctx, func() ([]*Node, error) { _, err := s.room(k); return nil, err }); err != nil {
		return s.granted("try", nil, err)
	}
	turn, err := s.locks.TryAcquire(ctx)
	if err != nil {
		return nil, err
	}
	taken, err := s.task(ctx, func() ([]*Node, error) { return s.tryTake(ctx, turn, k) })
	return s.granted("try", taken, err)
}

// granted names the path in an error.
func (s *semaphore) granted(op string, taken []*Node, err error) ([]second.Permit, error) {
	if err != nil {
		return nil, fmt.Errorf("zklock: %s %s: %w", op, s.path, err)
	}
	return permitsOf(taken), nil
}

func permitsOf(taken []*Node) []second.Permit {
	permits := make([]second.Permit, len(taken))
	for i, n := range taken {
		permits[i] = grant{n}
	}
	return permits
}

// task runs f where Close waits for its end. A caller who leaves before that has what was taken given up.
func (s *semaphore) task(ctx context.Context, f func() ([]*Node, error)) ([]*Node, error) {
	type result struct {
		taken []*Node
		err   error
	}
	results := make(chan result)
	if !s.link.Spawn(func() {
		taken, err := f()
		select {
		case results <- result{taken, err}:
		case <-ctx.Done():
			if len(taken) > 0 {
				s.Release(permitsOf(taken))
			}
		}
	}) {
		return nil, ErrClosed
	}
	select {
	case r := <-results:
		return r.taken, r.err
	case <-ctx.Done():
		return nil, s.link.Explain(context.Cause(ctx))
	}
}

// tryTake takes permits if they are free, and gives the turn up in any case.
func (s *semaphore) tryTake(ctx context.Context, turn *Node, k int) ([]*Node, error) {
	seen, err := s.room(k)
	if err == nil {
		err = s.mark(seen)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		turn.Release()
		return nil, err
	}
	return s.exchange(ctx, turn, k, seen)
}

// room looks whether k permits are free.
func (s *semaphore) room(k int) (sight, error) {
	v := s.newVigil(nil, nil)
	defer v.end()
	seen, err := s.look(v)
	if err == nil && seen.free < k {
		err = ErrLocked
	}
	return seen, err
}

// A vigil is the wait of whoever has the turn, for enough permits to become free. Nobody else may
// take any meanwhile, so what was free once stays so.
type vigil struct {
	*semaphore
	turn         *Node
	demand       *second.Demand
	contested    <-chan struct{}
	changed      mutexbool.Bool // look again
	leases, path link.Watcher
}

func (s *semaphore) newVigil(turn *Node, d *second.Demand) *vigil {
	v := &vigil{semaphore: s, turn: turn, demand: d}
	v.leases.Notify, v.path.Notify = v.changed.Set, v.changed.Set
	return v
}

// keep returns what was taken. The turn is given up in any case; with errGone it was lost.
func (v *vigil) keep(ctx context.Context) ([]*Node, error) {
	defer v.end()
	v.demand.Contest(v.turn.beside)
	for pace := retry.New(); ; {
		v.changed.Clear() // before the look: what comes later ends the wait
		seen, err := v.look(v)
		if err == nil {
			err = v.mark(seen)
		}
		again := v.turn.session.Recheck() // watches can be lost
		switch {
		case err == nil:
			pace.Reset()
		case classify(err) == permanent, errors.Is(err, second.ErrPermits):
			v.turn.Release()
			return nil, err
		default:
			again, seen.free = pace.NextBackOff(), 0
		}
		k, err := v.wait(ctx, seen.free, again)
		switch {
		case err != nil:
			v.turn.Release()
			return nil, err
		case k > 0:
			return v.exchange(ctx, v.turn, k, seen)
		}
	}
}

// wait returns how many of the free permits are wanted, or none when it is time to look again.
func (v *vigil) wait(ctx context.Context, free int, again time.Duration) (k int, err error) {
	timer := time.NewTimer(again)
	defer timer.Stop()
	for {
		v.demand.Changed.Clear() // before the question
		if k := v.demand.Take(min(free, v.Most())); k > 0 {
			return k, nil
		}
		if v.contested == nil { // whoever does not wait needs not know
			v.contested = v.turn.contested.C()
		}
		select {
		case <-v.demand.Changed.C():
		case <-v.contested:
			v.demand.Contest(1)
			v.contested = make(chan struct{})
		case <-v.changed.C():
			return 0, nil
		case <-timer.C:
			return 0, nil
		case <-v.turn.Lost():
			return 0, errGone
		case <-ctx.Done():
			return 0, v.link.Explain(context.Cause(ctx))
		}
	}
}

func (v *vigil) end() {
	v.link.Events.Ignore(v.semaphore.leases.path, &v.leases)
	v.link.Events.Ignore(v.semaphore.path, &v.path)
}

const leaseMarker = "lease-"

// maxWrite leaves room in the megabyte that a server takes in one request by default.
const maxWrite = 900 << 10

// Most is how many permits fit into one transaction.
func (s *semaphore) Most() int {
	one := len(s.leases.path) + len(s.leases.content()) + 128 // name, flags, header
	for _, acl := range s.leases.acl {
		one += len(acl.Scheme) + len(acl.ID) + 16
	}
	return max(maxWrite/one, 1)
}

// creates are the operations that make the nodes with these prefixes.
func (s *semaphore) creates(prefixes []string) (ops []any) {
	data := s.leases.content()
	for _, prefix := range prefixes {
		ops = append(ops, &zk.CreateRequest{
			Path: s.leases.path + "/" + prefix, Data: data, Acl: s.leases.acl,
			Flags: zk.FlagEphemeral | zk.FlagSequence,
		})
	}
	return ops
}

// exchange gives the turn up for k permits, in one transaction: it takes effect only while the turn
// is ours, and all of it or nothing does. The turn is given up in any case. With errGone nothing
// was taken, and another turn is needed.
func (s *semaphore) exchange(ctx context.Context, turn *Node, k int, seen sight) ([]*Node, error) {
	a := &attempt{lock: s.leases, client: s.Client, ctx: ctx}
	var err error
	switch {
	case turn.lossNow() != nil:
		err = errGone
	case seen.missing:
		err = a.beginBuilding()
	}
	if err != nil {
		turn.Release()
		return nil, err
	}
	turn.spent.Store(true) // so that its end is no loss
	turn.session.Leave(member{turn})
	defer turn.stepAside()
	prefixes := make([]string, k)
	for i := range prefixes {
		prefixes[i] = newID() + leaseMarker
	}
	answer := a.submit(append(link.Transaction(turn.znodes.deletes()), s.creates(prefixes)...))
	taken, err := s.exchanged(a, turn, prefixes, answer)
	a.endBuilding(err == nil)
	return taken, err
}

// submit sends a transaction, behind what makes the parents, if these are missing.
func (a *attempt) submit(ops link.Transaction) link.Answer {
	buildings := a.buildings()
	requests := append(buildings, ops)
	var answers []link.Answer
	if a.client.link.Ordered() {
		answers = a.client.link.Ask(requests...)
	} else {
		for _, q := range requests {
			answers = append(answers, a.client.link.Ask(q)...)
		}
	}
	a.noteBuilt(buildings, answers)
	return answers[len(buildings)]
}

// exchanged sees to what has become of an exchange.
func (s *semaphore) exchanged(a *attempt, turn *Node, prefixes []string, answer link.Answer) ([]*Node, error) {
	switch classify(answer.Err) {
	case done:
		turn.znodes.deleted(done)
		turn.finish(nil)
		return s.adopt(a, turn, answer.Created, answer.Session)
	case permanent:
		turn.delete(nil)
		return nil, lacking("CREATE or DELETE", s.leases.path, answer.Err)
	case uncertain:
		turn.finish(turn.doubt(answer.Err))
		n, err := a.lookUp(prefixes, answer.Err)
		if n == nil {
			return nil, cmp.Or(err, errGone)
		}
		return s.adopt(a, turn, n.znodes.paths(), nil)
	}
	turn.delete(nil)
	if classify(a.obstacle) == permanent {
		return nil, a.obstacle
	}
	return nil, errGone
}

// adopt has the lease of the session cover what was taken, all or nothing. Under which session that
// was is read unless it is known.
func (s *semaphore) adopt(a *attempt, turn *Node, paths []string, session *link.Session) ([]*Node, error) {
	taken := make([]*Node, len(paths))
	var err error
	for i, path := range paths {
		n := newNode(s.leases, cmp.Or(session, turn.session), []string{path})
		taken[i] = n
		switch {
		case err != nil:
		case session != nil:
			err = n.bind(session, turn.token)
		default:
			err = a.verify(n, n.znodes[0], s.link.Read(n.readings(n.znodes)...)[0])
			n.token = turn.token
		}
		if err == nil && !n.grant(standing{}) {
			err = errGone
		}
	}
	if err == nil {
		return taken, nil
	}
	for _, n := range taken {
		n.spent.Store(true)
		n.leave()
	}
	s.leaveToReaper(taken, nil)
	if classify(err) == permanent {
		return nil, err
	}
	return nil, errGone
}

// Release deletes the nodes of permits in one transaction.
func (s *semaphore) Release(permits []second.Permit) error {
	nodes := make([]*Node, len(permits))
	var loss error
	for i, p := range permits {
		n := p.(grant).Node
		nodes[i] = n
		n.spent.Store(true)
		if n.znodes.gone() { // by another hand, and nobody has said so yet
			n.endHold(errDeleted(n.path()))
		}
		loss = cmp.Or(loss, n.leave())
	}
	switch err := s.Err(); {
	case err != nil && !errors.Is(err, ErrClosed) && s.link.Leased():
		s.leaveToReaper(nodes, err)
	case err == nil && loss == nil && s.link.Spawn(func() { s.delete(nodes) }):
	default:
		for _, n := range nodes {
			n.startDelete(n.lossNow())
		}
	}
	if err := cmp.Or(s.awaitRelease(nodes), loss); err != nil {
		return fmt.Errorf("zklock: release permits of %s: %w", s.path, err)
	}
	return nil
}

func (s *semaphore) delete(nodes []*Node) {
	var ops []any
	for _, n := range nodes {
		ops = append(ops, n.znodes.deletes()...)
	}
	var err error
	answer := permanent
	if !s.link.Over() { // else each node sends nothing and says so
		_, err = s.link.Transact(ops...)
		answer = classify(err)
	}
	switch answer {
	case done:
		for _, n := range nodes {
			n.znodes.deleted(done)
			n.finish(nil)
		}
	case missing, permanent: // for one of them: nothing was done
		for _, n := range nodes {
			n.delete(nil)
		}
	default:
		s.leaveToReaper(nodes, err)
	}
}

// leaveToReaper has all that is not gone deleted together. Err is why the server has not answered.
func (s *semaphore) leaveToReaper(nodes []*Node, err error) {
	var paths []string
	for _, n := range nodes {
		if !n.reaped.Swap(true) && !n.znodes.gone() {
			paths = append(paths, n.path())
		}
	}
	if len(paths) > 0 && s.link.Context().Err() == nil { // else they go with the session
		s.reaper.Add(remains{parent: s.leases.path, paths: paths})
	}
	for _, n := range nodes {
		n.finish(cmp.Or(context.Cause(n.life), n.doubt(err)))
	}
}

// awaitRelease is that of a node for all of them together.
func (s *semaphore) awaitRelease(nodes []*Node) (fate error) {
	bound, cancel := context.WithTimeout(s.link.Context(), nodes[0].session.Negotiated()/3)
	defer cancel()
	for _, n := range nodes {
		select {
		case <-n.released:
			if errors.Is(n.fate, ErrLost) {
				n.endHold(n.fate)
			}
			fate = cmp.Or(fate, n.fate)
		case <-bound.Done():
			fate = cmp.Or(fate, n.doubt(nil))
		}
	}
	return fate
}

// The number of permits is the content of the path, so that two processes that were told different
// ones find out. It is written where nothing was said yet, by whoever has the turn to take permits.
// Other content is somebody's, and stays.
const permitsMark = "tierlock permits="

// A sight is what a look at a semaphore shows.
type sight struct {
	free    int
	missing bool  // there is nothing to put permits below
	blank   bool  // the path does not say how many there are, and may
	version int32 // of the content of the path
}

// look counts the permits that are taken, and compares the number of all. It sees to it that v hears
// of changes. A server that lags may show too many permits to whoever has the turn, never too few.
func (s *semaphore) look(v *vigil) (sight, error) {
	answers := s.link.WatchWith(s.leases.path, &v.leases, s.link.Reading(s.path, &v.path))
	leases, path := answers[0], answers[1]
	seen := sight{missing: classify(leases.Err) == missing}
	if leases.Err != nil && !seen.missing {
		return seen, fmt.Errorf("list %s: %w", s.leases.path, lacking("READ", s.leases.path, leases.Err))
	}
	seen.free = s.permits - len(leases.Children)
	switch {
	case path.Err == nil:
		seen.version = path.Stat.Version
		var err error
		seen.blank, err = s.compare(path)
		return seen, err
	case classify(path.Err) == missing, errors.Is(path.Err, zk.ErrNoAuth): // nothing can be compared
		return seen, nil
	}
	return seen, fmt.Errorf("read %s: %w", s.path, path.Err)
}

// compare reports whether the path has yet to say how many permits there are, or refuses one that
// says something else.
func (s *semaphore) compare(path link.Answer) (blank bool, err error) {
	text := string(path.Data)
	if path.Stat.DataLength == 0 || text == containerData {
		return true, nil
	}
	if number, ours := strings.CutPrefix(text, permitsMark); ours && number != strconv.Itoa(s.permits) {
		return false, fmt.Errorf("%w: %s says %s, this process %d; use one number everywhere; to change it, stop all processes and set the content of %s to %q",
			second.ErrPermits, s.path, number, s.permits, s.path, s.marking())
	}
	if _, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
		return false, fmt.Errorf("%w: the content of %s is %q, as of kazoo's Semaphore, which cannot share permits with this one; use another path",
			second.ErrPermits, s.path, text)
	}
	return false, nil
}

// errRewritten says that somebody else has just written to the path.
var errRewritten = errors.New("the number of permits was changed")

// mark writes the number of permits where it is not known, if that is permitted.
func (s *semaphore) mark(seen sight) error {
	if !seen.blank || s.unmarked.Load() {
		return nil
	}
	_, err := s.link.Conn.Set(s.path, []byte(s.marking()), seen.version)
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		s.unmarked.Store(true)
		return nil
	case errors.Is(err, zk.ErrBadVersion):
		return errRewritten
	case err != nil:
		return fmt.Errorf("write the number of permits to %s: %w", s.path, err)
	}
	return nil
}

// marking is the content of the path that says how many permits there are.
func (s *semaphore) marking() string { return permitsMark + strconv.Itoa(s.permits) }

// Contenders returns a process that has permits and waits for more in both places.
func (s *semaphore) Contenders(ctx context.Context) ([]second.Contender, error) {
	all, err := ask(ctx, s.Client, s.survey)
	if err != nil {
		return nil, fmt.Errorf("zklock: contenders of %s: %w", s.path, err)
	}
	return all, nil
}

// survey looks at the queue first: whoever trades its turn for permits meanwhile is seen twice, and
// not never.
func (s *semaphore) survey(ctx context.Context) ([]second.Contender, error) {
	queue, err := s.locks.survey(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.leaseholders(ctx)
	for _, q := range queue {
		all = append(all, q.forGate())
	}
	if err != nil || len(all) == 0 {
		return all, err
	}
	of, err := s.marked()
	for i := range all {
		all[i].Of = of
	}
	return all, err
}

// marked is how many permits there are as the path says it, 0 if it does not, or may not be read.
func (s *semaphore) marked() (int, error) {
	content, _, err := s.link.Conn.Get(s.path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth) {
		return 0, err
	}
	number, marked := strings.CutPrefix(string(content), permitsMark)
	of, err := strconv.Atoi(number)
	if !marked || err != nil {
		return 0, nil
	}
	return of, nil
}

// leaseholders returns those that have permits, in the order in which they took the first one. What
// belongs to one session belongs to one process.
func (s *semaphore) leaseholders(ctx context.Context) ([]second.Contender, error) {
	children, _, err := s.link.Conn.Children(s.leases.path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, lacking("READ", s.leases.path, err)
	}
	var leases []Contender
	for _, name := range children {
		lease := Contender{Node: name}
		switch err := s.fill(s.leases.path, &lease); {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return nil, err
		default:
			leases = append(leases, lease)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	slices.SortFunc(leases, func(a, b Contender) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Node, b.Node))
	})
	var holders []second.Contender
	places := make(map[int64]int) // of sessions, among holders
	for _, lease := range leases {
		if at, known := places[lease.Session]; known && lease.Session != 0 {
			holders[at].Permits++
			continue
		}
		places[lease.Session] = len(holders)
		holder := lease.forGate()
		holder.Token, holder.Permits = 0, 1 // the token is that of a turn that is over
		holders = append(holders, holder)
	}
	return holders, nil
}
