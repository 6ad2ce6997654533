package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/tier"
)

const (
	reenterEvery  = 8 // one in this many holds acquires the lock a second time
	guardEvery    = 2 // one section in this many is in the transaction of a guarded write, if the store has guarded writes
	carelessEvery = 2 // in one of this many holds, the holder writes without checking that it still has the lock
)

// witness is what a worker needs to record its holds. The holds are judged after a run with faults.
type witness struct {
	worker  *worker
	journal *evidence.Journal
	fence   *evidence.Gate
}

func newWitness(w *worker) (*witness, error) {
	j, err := evidence.CreateJournal(w.task.Dir, w.task.Process)
	if err != nil {
		return nil, err
	}
	fence, err := evidence.DialFence(w.task.Dir)
	return &witness{worker: w, journal: j, fence: fence}, err
}

// turn acquires the lock, runs one section and releases the lock. It records what the holder saw.
func (w *witness) turn(ctx context.Context, random *rand.Rand, acquire store.Contender, path int) error {
	weight := w.worker.rule.Draw(random)
	asked := clock.Now()
	h, err := acquire(ctx, weight)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s := &stay{witness: w, held: h, acquire: acquire, random: random}
	s.Hold = evidence.Hold{
		Process: w.worker.task.Process, Agent: w.worker.task.Agent, ID: w.journal.NextID(),
		Path: path, Weight: weight, Token: h.Token(), Asked: asked, Got: clock.Now(),
	}
	s.look()
	return errors.Join(w.journal.Write(&s.Hold), s.visit(ctx), s.release(), w.journal.Write(&s.Hold))
}

// stay is one hold, from its acquisition to its release.
type stay struct {
	evidence.Hold
	witness *witness
	held    store.Hold
	acquire store.Contender
	random  *rand.Rand
}

// The method look checks whether the lock is still held, and records the answer.
func (s *stay) look() bool {
	at := clock.Now() // read before the check, because the process may be paused between the two
	if s.held.Err() != nil {
		s.Lost = true
		return false
	}
	s.Valid = at
	return true
}

// visit is the critical section. It goes on after a loss, because a run with faults tests what happens then: the hold has to report the
// loss, and the fence has to refuse the write.
func (s *stay) visit(ctx context.Context) error {
	from := clock.Now()
	section, err := s.witness.worker.registers[s.Path].Enter(s.Weight)
	if err != nil {
		return err
	}
	if section.Overlap {
		s.Met = &evidence.Overlap{From: from, Until: clock.Now()}
	}
	err = s.pass(ctx)
	left := section.Abandon()
	s.Left = clock.Now()
	return errors.Join(err, left)
}

// The method pass accesses the fence. An exclusive section increments the registers of the fence. A shared section reads them twice.
func (s *stay) pass(ctx context.Context) error {
	begin, end := s.witness.fence.Read, s.witness.fence.Write
	access := evidence.Access{Path: s.Path, Token: s.Token, Process: int64(s.Process), Agent: int64(s.Agent)}
	if access.Shared = s.Token == 0 || !s.witness.worker.rule.Alone(s.Weight); access.Shared {
		end = s.witness.fence.Check
	}
	var answer evidence.Answer
	if err := s.ask(begin, access, &answer); err != nil || answer.Refused {
		return err
	}
	var nested error
	if s.random.IntN(reenterEvery) == 0 {
		nested = s.reenter(ctx)
	}
	if s.witness.worker.task.Store.Guarded == nil || access.Shared || s.random.IntN(guardEvery) != 0 {
		s.work()
	} else if err := s.guarded(ctx); err != nil {
		return errors.Join(nested, err)
	}
	if s.random.IntN(carelessEvery) != 0 && !s.look() {
		return nested
	}
	if err := s.witness.journal.Write(&s.Hold); err != nil {
		return err
	}
	access.Fenced, access.Unfenced = answer.Fenced, answer.Unfenced
	return errors.Join(nested, s.ask(end, access, &answer))
}

func (s *stay) work() {
	task := s.witness.worker.task
	if every := task.LongEvery; every > 0 && s.random.IntN(every) == 0 {
		s.Long = true
		time.Sleep(task.Long)
	} else if d := task.Section; d > 0 {
		time.Sleep(time.Duration(s.random.Int64N(2 * int64(d))))
	}
	for exists(lingerName(task.Dir, s.Process)) && s.look() {
		time.Sleep(time.Millisecond)
	}
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// The method guarded works in the transaction of a guarded write. Its outcome may be unknown.
func (s *stay) guarded(ctx context.Context) error {
	task := s.witness.worker.task
	guard, ok := s.held.(tier.Guard)
	if !ok {
		return fmt.Errorf("%T is no guard", s.held)
	}
	late, err := task.Store.Guarded(ctx, guard, task.LockPaths[s.Path], s.Token, s.work)
	switch {
	case err == nil:
		s.Guarded = evidence.Guarded{Written: true, Late: late}
	case errors.Is(err, store.ErrLost):
		s.Guarded.Refused = true
	}
	return nil
}

func (s *stay) ask(call func(evidence.Access, *evidence.Answer) error, access evidence.Access, answer *evidence.Answer) error {
	if err := call(access, answer); err != nil {
		return err
	}
	if answer.Refused {
		// A higher token was used, so another owner has acquired the lock. The lease of this owner must have ended before that; look checks
		// it.
		s.Refused = true
		s.Blind = s.look()
	}
	return nil
}

// reenter acquires the lock again if this kind of lock allows that. It acquires in the same mode, or as a reader within a writer's hold.
func (s *stay) reenter(ctx context.Context) error {
	outer, ok := s.held.(interface {
		Context(ctx context.Context) context.Context
	})
	if !ok {
		return nil
	}
	n := evidence.Nesting{Asked: clock.Now()}
	h, err := s.acquire(outer.Context(ctx), [...]int64{s.Weight, 1}[s.random.IntN(2)])
	if err != nil {
		if !s.look() || ctx.Err() != nil {
			return nil
		}
		return err
	}
	n.Got, n.Token = clock.Now(), h.Token()
	n.Called = clock.Now()
	err = h.Release()
	n.Return = clock.Now()
	s.Nested = append(s.Nested, n)
	return s.judgeLoss(err)
}

func (s *stay) release() error {
	called := clock.Now()
	err := s.held.Release()
	s.Over = clock.Now()
	switch {
	case err != nil:
	case s.Lost: // a loss is final, which Release has to report
		s.Blind = true
	default:
		s.Valid = called
	}
	return s.judgeLoss(err)
}

// judgeLoss is called with the error of Release. If the error is a loss, judgeLoss records the loss and returns nil.
func (s *stay) judgeLoss(err error) error {
	if errors.Is(err, store.ErrLost) {
		s.Lost = true
		return nil
	}
	return err
}
