package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/rpc"
	"time"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

const (
	reenterEvery  = 8 // turns
	carelessEvery = 2 // turns; such a holder writes without looking whether it still has the lock
)

// witness is what a worker needs to have its holds judged under faults.
type witness struct {
	worker  *worker
	journal *journal
	fence   *rpc.Client
}

func newWitness(w *worker) (*witness, error) {
	j, err := createJournal(w.task.Dir, w.task.Process)
	if err != nil {
		return nil, err
	}
	client, err := rpc.Dial("unix", fenceAddr(w.task.Dir))
	return &witness{worker: w, journal: j, fence: client}, err
}

// turn acquires the lock, goes through one section and releases, and writes down what
// it saw.
func (w *witness) turn(ctx context.Context, random *rand.Rand, acquire contender, path int) error {
	asked := now()
	h, err := acquire(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s := &stay{witness: w, held: h, acquire: acquire, random: random}
	s.hold = hold{
		Process: w.worker.task.Process, ID: w.journal.nextID(),
		Path: path, Token: h.Token(), Asked: asked, Got: now(),
	}
	s.look()
	return errors.Join(w.journal.write(&s.hold), s.visit(ctx), s.release(), w.journal.write(&s.hold))
}

// stay is one hold while it lasts.
type stay struct {
	hold
	witness *witness
	held    held
	acquire contender
	random  *rand.Rand
}

// look asks whether the lock is still ours.
func (s *stay) look() bool {
	at := now() // before the question: a process can be stopped in between
	if s.held.Err() != nil {
		s.Lost = true
		return false
	}
	s.Valid = at
	return true
}

// visit is the critical section. It does not end early when the lock is lost: the
// looks and the fence are what is tested.
func (s *stay) visit(ctx context.Context) error {
	from := now()
	section, err := s.witness.worker.registers[s.Path].enter()
	if err != nil {
		return err
	}
	if section.overlap {
		s.Met = &overlap{from, now()}
	}
	err = s.increment(ctx)
	left := section.abandon()
	s.Left = now()
	return errors.Join(err, left)
}

// increment adds one to the registers of the fence.
func (s *stay) increment(ctx context.Context) error {
	access := Access{Path: s.Path, Token: s.Token, Process: int64(s.Process)}
	var answer Answer
	if err := s.call("Fence.Read", access, &answer); err != nil || answer.Refused {
		return err
	}
	var nested error
	if s.random.IntN(reenterEvery) == 0 {
		nested = s.reenter(ctx)
	}
	if d := s.witness.worker.task.Section; d > 0 {
		time.Sleep(time.Duration(s.random.Int64N(2 * int64(d))))
	}
	if s.random.IntN(carelessEvery) != 0 && !s.look() {
		return nested
	}
	if err := s.witness.journal.write(&s.hold); err != nil {
		return err
	}
	access.Fenced, access.Unfenced = answer.Fenced, answer.Unfenced
	return errors.Join(nested, s.call("Fence.Write", access, &answer))
}

func (s *stay) call(method string, access Access, answer *Answer) error {
	if err := s.witness.fence.Call(method, access, answer); err != nil {
		return err
	}
	if answer.Refused {
		// A higher token has come, so its owner has the lock, so our lease is over.
		s.Refused = true
		s.Blind = s.look()
	}
	return nil
}

// reenter acquires the lock again, if it is of a kind that can be.
func (s *stay) reenter(ctx context.Context) error {
	outer, ok := s.held.(interface {
		Context(ctx context.Context) context.Context
	})
	if !ok {
		return nil
	}
	n := nesting{Asked: now()}
	h, err := s.acquire(outer.Context(ctx))
	if err != nil {
		if !s.look() || ctx.Err() != nil {
			return nil
		}
		return err
	}
	n.Got, n.Token = now(), h.Token()
	n.Called = now()
	err = h.Release()
	n.Return = now()
	s.Nested = append(s.Nested, n)
	return s.judgeLoss(err)
}

func (s *stay) release() error {
	called := now()
	err := s.held.Release()
	s.Over = now()
	if err == nil && !s.Lost {
		s.Valid = called
	}
	return s.judgeLoss(err)
}

// judgeLoss keeps what an error of Release says about the hold.
func (s *stay) judgeLoss(err error) error {
	if errors.Is(err, tier.ErrLost) || errors.Is(err, zklock.ErrLost) {
		s.Lost = true
		return nil
	}
	return err
}
