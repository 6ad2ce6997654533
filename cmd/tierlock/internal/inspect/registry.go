package inspect

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tierlock/tierlock/tier"
)

// A Registry reads the locks of a store whose registry shows all contenders. Contenders wait by the rules of package tier; those of other
// programs count as mutexes. A glance costs as much as [tier.Mutex.Contenders] and, if the store has semaphores,
// [tier.Semaphore.Contenders].
type Registry struct {
	Locks *tier.Registry
	// Paths finds the paths of locks and semaphores at a path and below it, each once; / means all. Paths reads at most limit entries, and
	// returns how many it has read, and whether these were all.
	Paths func(ctx context.Context, below string, limit int) (paths []string, looked int, complete bool, err error)
}

// List finds the locks, and reads the queue of each.
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

// gracePeriod returns the grace period that the registry knows, nil if there is none.
func (r Registry) gracePeriod() (q *tier.GracePeriodError) {
	errors.As(r.Locks.Err(), &q)
	return q
}

// Look reads a queue.
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
	readers, other := 0, 0 // how many read so far, and the place of the last that does not
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

// semaphore reads the holders of permits at a path, and the waiters; nil if there are none.
func (r Registry) semaphore(ctx context.Context, path string, now time.Time) (*Semaphore, error) {
	all, err := r.Locks.Semaphore(path, 1).Contenders(ctx) // whatever their number is
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

// contender converts a contender as the registry shows it. Its state does not show yet what it waits for.
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

// Glance is Look, since the registry shows nothing else.
func (r Registry) Glance(ctx context.Context, path string, _ *Queue) (*Queue, error) {
	return r.Look(ctx, path)
}

// settle turns an error into a refusal if it came although there was time for another try.
func settle(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, tier.ErrClosed) {
		return err
	}
	return &Refusal{err}
}

// Examine returns findings about a queue. Findings that find adds about a contender are shown with its other findings.
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
			report.Find(Note, c.Node, "has no description: it belongs to another program, with its own rules of waiting")
		}
		report.FindWishes(c)
	}
	return report, nil
}
