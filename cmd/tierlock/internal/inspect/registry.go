package inspect

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tierlock/tierlock/tier"
)

// A Registry reads the locks of a store whose tier.Registry shows all contenders. It assumes that contenders wait by the rules of package
// tier, and that contenders of other programs are mutexes. A glance costs as much as [tier.Mutex.Contenders]. If the store has semaphores,
// it also costs as much as [tier.Semaphore.Contenders].
type Registry struct {
	Locks *tier.Registry
	// Paths returns the paths of locks and semaphores at the path below and under it. Each path appears once, and / stands for all paths.
	// Paths reads at most limit entries. It returns how many entries it has read, and whether there are no more.
	Paths func(ctx context.Context, below string, limit int) (paths []string, looked int, complete bool, err error)
}

// List finds the locks, and reads the queue of each lock.
func (r Registry) List(ctx context.Context, path string, limit int, all bool) (*Listing, error) {
	paths, looked, complete, err := r.Paths(ctx, path, limit)
	if err != nil {
		return nil, settle(ctx, err)
	}
	slices.Sort(paths)
	queues := make([]*Queue, len(paths))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, path := range paths {
		group.Go(func() (err error) {
			queues[i], err = r.Look(ctx, path)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	list := &Listing{Path: path, Locks: []Summary{}, Looked: looked, Complete: complete, GracePeriod: r.gracePeriod()}
	for _, q := range queues {
		if len(q.Contenders) > 0 || all && q.Semaphore == nil {
			list.Locks = append(list.Locks, Summary{Path: q.Path, Holder: q.Holder(), Holders: len(q.Holders()), Queue: len(q.Contenders)})
		}
		if s := q.Semaphore; s != nil {
			list.Locks = append(list.Locks, Summary{Path: q.Path, Queue: len(s.Queue), Permits: &s.Permits})
		}
	}
	return list, nil
}

// gracePeriod returns the grace period that the registry knows. It returns nil if there is none.
func (r Registry) gracePeriod() (q *tier.GracePeriodError) {
	errors.As(r.Locks.Err(), &q)
	return q
}

// Look reads the queue of a lock.
func (r Registry) Look(ctx context.Context, path string) (*Queue, error) {
	now := time.Now()
	queue, err := r.Locks.Mutex(path).Contenders(ctx)
	if err != nil {
		return nil, settle(ctx, err)
	}
	semaphore, err := r.semaphore(ctx, path, now)
	if err != nil {
		return nil, settle(ctx, err)
	}
	q := &Queue{
		Path: path, Exists: len(queue) > 0 || semaphore != nil, At: now,
		Contenders: []Contender{}, Others: []Other{}, Semaphore: semaphore, GracePeriod: r.gracePeriod(),
	}
	readers, other := 0, 0 // the number of readers so far, and the place of the last contender that does not read
	for i, seen := range queue {
		c := contender(seen, now)
		nearest := i - 1
		c.Sequence, c.Ahead = int32(i), i
		if seen.Shared {
			c.Ahead, c.Beside, nearest = i-readers, readers, other
			readers++
		} else {
			other = i
		}
		if c.Ahead > 0 {
			c.State, c.Behind, c.Nearest = Waits, q.Contenders[nearest].Node, int32(nearest)
		}
		q.Contenders = append(q.Contenders, c)
	}
	return q, nil
}

// The method semaphore reads the holders and the waiters of permits at a path. It returns nil if there are none.
func (r Registry) semaphore(ctx context.Context, path string, now time.Time) (*Semaphore, error) {
	all, err := r.Locks.Semaphore(path, 1).Contenders(ctx) // Contenders works with any number of permits
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	if err != nil || len(all) == 0 {
		return nil, err
	}
	s := &Semaphore{Permits: Permits{All: all[0].Of}, Shares: []Share{}, Queue: []Contender{}}
	for _, seen := range all {
		c := contender(seen, now)
		if seen.Permits > 0 {
			s.InUse += seen.Permits
			s.Add(&c, seen.Permits)
			continue
		}
		ahead := len(s.Queue)
		c.Sequence, c.Ahead, c.State = int32(ahead), ahead, Next
		if ahead > 0 {
			c.State, c.Behind, c.Nearest = Waits, s.Queue[ahead-1].Node, int32(ahead-1)
		}
		s.Queue = append(s.Queue, c)
	}
	return s, nil
}

// The function contender converts a contender of the registry. In its result, the state does not say yet whether the contender waits.
func contender(seen tier.Contender, now time.Time) Contender {
	c := Contender{
		Node: seen.ID, Kind: KindTierlock, State: Holds, Readable: true, Token: seen.Token, Ephemeral: true, Since: seen.Since,
		Host: seen.Host, PID: seen.PID, Label: seen.Label, LingerMS: seen.Linger.Milliseconds(), Asked: seen.Asked,
	}
	if !seen.Since.IsZero() {
		c.AgeMS = max(0, now.Sub(seen.Since).Milliseconds())
	}
	if seen.InGracePeriod {
		c.State = InGracePeriod
	}
	switch {
	case seen.PID == 0 && seen.Host == "":
		c.Kind = KindOther
	case seen.Shared:
		c.Kind = KindTierlockRead
	}
	return c
}

// Glance is the same as Look, because the registry cannot read less.
func (r Registry) Glance(ctx context.Context, path string, _ *Queue) (*Queue, error) {
	return r.Look(ctx, path)
}

// settle returns a [Refusal] if err came before the end of ctx: the registry retries as long as that may help. Otherwise it returns err
// unchanged.
func settle(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, tier.ErrClosed) {
		return err
	}
	return &Refusal{err}
}

// Examine returns findings about a queue. The function find adds findings of the store. A finding about a contender is shown together with
// the other findings about it.
func (r Registry) Examine(ctx context.Context, path string, find func(context.Context, *Report) error) (*Report, error) {
	q, err := r.Look(ctx, path)
	if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
		report := &Report{Queue: &Queue{Path: path, Contenders: []Contender{}, Others: []Other{}}}
		report.Find(Problem, "", "%v", err)
		return report, nil
	}
	if err != nil {
		return nil, err
	}
	report := &Report{Queue: q}
	if q.GracePeriod != nil {
		report.Find(Warning, "", "%v", q.GracePeriod)
	}
	if err := find(ctx, report); err != nil {
		return nil, settle(ctx, err)
	}
	if s := q.Semaphore; s != nil {
		report.Find(OK, "", "a semaphore, %s, %d in the queue for permits", s.Permits, len(s.Queue))
	}
	report.FindLongWait()
	found := report.Findings
	report.Findings = slices.DeleteFunc(slices.Clone(found), func(f Finding) bool { return f.Child != "" })
	for i := range q.Contenders {
		c := &q.Contenders[i]
		report.FindRole(c)
		for _, f := range found {
			if f.Child == c.Node {
				report.Findings = append(report.Findings, f)
			}
		}
		if c.Kind == KindOther {
			report.Find(Note, c.Node, "has no description: it belongs to another program, which may not wait for other entries")
		}
		report.FindWishes(c)
	}
	return report, nil
}
