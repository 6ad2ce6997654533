package tiertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

var orderPromises = []promise{
	{name: "order", text: "Only one process at a time holds the lock; waiting processes get it in the order in which they queued",
		test: inOrder},
	{name: "overtaking", text: "While a process waits, no other process gets the lock before it: no new waiter, no TryAcquire, and no " +
		"former holder", test: nobodyOvertakes},
	{name: "wake-up", text: "When a holder releases the lock, the next waiter gets it, whichever messages are in flight at that moment",
		test: wakeUp},
	{name: "contenders", text: "Contenders lists the processes in the queue with their tokens, the holder first", test: contenders},
	{name: "standing", text: "A waiter knows how many processes are ahead of it, and which process is next to it, without sending a " +
		"further request",
		test: standing},
	{name: "claims", text: "Two lock handles of a store compare equal (`==`) exactly if they are for the same lock; an invalid path gives " +
		"an error",
		test: claims},
}

func claims(s *scene) {
	p := s.process()
	claim := func(path string) second.Claim {
		s.Helper()
		c, err := p.Claim(path, second.Options{})
		if err != nil {
			s.Fatalf("Claim: %v", err)
		}
		return c
	}
	if !p.claim.Equal(claim(s.path)) {
		s.Errorf("two claims for one lock are not equal")
	}
	if p.claim.Equal(claim(s.path + "-other")) {
		s.Errorf("claims for two locks are equal")
	}
	if _, err := p.Claim("", second.Options{}); err == nil {
		s.Errorf("there is a claim for no path")
	}
}

func wakeUp(s *scene) {
	holder, p := s.process(), s.process()
	s.used(holder)
	s.wakesUp(p, func(ctx context.Context, release chan<- func()) (*call, func()) {
		h := holder.acquire()
		release <- func() { s.release(h) }
		r := s.begin(ctx, p.claim.Acquire)
		return r.call, func() { s.release(r.granted()) }
	})
}

// wakesUp tests that a waiter gets the lock, whenever the holder releases. In each run, the holder releases at another message to the
// waiter. In the last run, it releases when no more messages come. The function begin starts the holder and the waiter's call. It returns
// that call, and a function that checks how the call ends.
func (s *scene) wakesUp(p *proc, begin func(ctx context.Context, release chan<- func()) (*call, func())) {
	s.Helper()
	release := make(chan func(), 1) // releases the lock of the present holder
	letGo := func() {
		select {
		case f := <-release:
			f()
		default:
		}
	}
	s.each(p, mishap{name: "the holder gives up", do: letGo}, func(ctx context.Context) {
		c, settle := begin(ctx, release)
		if c.waits() {
			letGo()
		}
		s.within(s.news(), "the grant of a waiter", func() { <-c.done })
		settle()
		s.none()
	})
}

// The method look returns the queue as the process sees it.
func (p *proc) look() []second.Contender {
	p.scene.Helper()
	return p.scene.look(p.claim.Contenders)
}

func (s *scene) look(contenders func(context.Context) ([]second.Contender, error)) []second.Contender {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), s.patience())
	defer cancel()
	queue, err := contenders(ctx)
	if err != nil {
		s.Fatalf("Contenders: %v", err)
	}
	return queue
}

// The method sees waits until the process sees this number of contenders. The server of the process may lag behind.
func (p *proc) sees(contenders int) (queue []second.Contender) {
	p.scene.Helper()
	p.scene.await(fmt.Sprint(contenders, " contenders are seen"), p.scene.news(), func() bool {
		queue = p.look()
		return len(queue) == contenders
	})
	return queue
}

func contenders(s *scene) {
	p := s.processes(3)
	if queue := p[0].look(); len(queue) > 0 {
		s.Errorf("contenders for a lock that was never used: %+v", queue)
	}
	h := p[0].acquire()
	waiting := []*request{p[1].queue(), p[2].queue()}
	var queue []second.Contender
	for _, asker := range p {
		queue = asker.sees(3)
		if queue[0].Token != h.Token() {
			s.Fatalf("contenders: %+v, want first the holder with token %d", queue, h.Token())
		}
	}
	s.release(h)
	for i, r := range waiting {
		h := r.granted()
		if want := queue[i+1].Token; h.Token() != want {
			s.Errorf("token %d of a grant, want %d as seen in the queue", h.Token(), want)
		}
		s.release(h)
	}
	s.none()
}

func inOrder(s *scene) {
	p := s.processes(3)
	newcomer := s.process()
	h := p[0].acquire()
	waiting := []*request{p[1].queue(), p[2].queue(), p[0].queue(), p[1].queue()}
	for i, r := range waiting {
		newcomer.refused()
		s.release(h)
		h = r.granted()
		for _, later := range waiting[i+1:] {
			if later.ended() {
				s.Errorf("a later waiter was granted, or failed: %v", later.err)
			}
		}
	}
	s.release(h)
	s.none()
}

// The lock goes to the next contender in the queue, even if other processes come and go.
func nobodyOvertakes(s *scene) {
	p := s.processes(4)
	h := p[0].acquire()
	for turn := range 12 {
		owner, next, newcomer, trier := p[turn%4], p[(turn+1)%4], p[(turn+2)%4], p[(turn+3)%4]
		r := next.queue()
		tries := make(chan error, 1)
		go func() {
			for !r.ended() {
				g, err := trier.claim.TryAcquire(s.Context())
				if err == nil {
					s.enter(g).Release()
				}
				if !errors.Is(err, second.ErrLocked) {
					tries <- err
					return
				}
				time.Sleep(s.moment() / 60) // this pause lets virtual time pass
			}
			tries <- second.ErrLocked
		}()
		come := newcomer.begin(newcomer.claim.Acquire)
		again := owner.requeue(s.Context(), h)
		h = r.granted()
		if err := <-tries; !errors.Is(err, second.ErrLocked) {
			s.Errorf("TryAcquire while a process waits: %v, want ErrLocked", err)
		}
		if last := s.last(); last != h {
			s.Errorf("a contender was overtaken: token %d after %d", last.Token(), h.Token())
		}
		s.awaitLeft(3) // waits until cancelled contenders are gone, which could be taken for the next one
		for _, r := range []*request{come, again} {
			r.cancel()
			r.end()
			if r.err == nil {
				s.release(r.hold)
			}
		}
		s.awaitLeft(1)
	}
	s.release(h)
	s.none()
}

var requeuePromises = []promise{
	{name: "requeue-writes", text: "A requeue takes one write: the holder releases the lock and queues again at the same time",
		alone: true, test: requeueIsOneWrite},
	{name: "requeue-order", text: "After a requeue, the former holder is at the tail of the queue, and the next waiter gets the lock",
		test: requeueGoesToTheTail},
	{name: "requeue-troubled", text: "A requeue releases the lock before it queues again, even if its context ends or a message is lost " +
		"at any step",
		test: requeueGivesUp},
}

func requeueIsOneWrite(s *scene) {
	p := s.processes(2)
	s.used(p[0])
	h := p[0].acquire()
	r := p[1].queue()
	for turn := range 6 {
		s.costs("a requeue", 1, 1, func() {
			again := p[turn%2].requeue(s.Context(), h)
			h, r = r.granted(), again
			s.awaitLeft(2)
		})
	}
	s.release(h)
	s.release(r.granted())
	s.none()
}

func requeueGoesToTheTail(s *scene) {
	p := s.processes(3)
	h := p[0].acquire()
	second, third := p[1].queue(), p[2].queue()
	gone := s.awaitRelease(h)
	s.settled()
	if gone.ended() {
		s.Errorf("AwaitRelease has not waited for the end of the grant")
	}
	last := p[0].requeue(s.Context(), h)
	for _, r := range []*request{second, third, last} {
		h := r.granted()
		if last != r && last.ended() {
			s.Errorf("a requeue has overtaken")
		}
		s.release(h)
	}
	gone.succeeded("AwaitRelease")
	s.none()
}

// awaitRelease starts to wait for the end of a grant that a requeue is going to release.
func (s *scene) awaitRelease(h *hold) *request {
	return s.begin(s.Context(), func(context.Context) (second.Grant, error) { return nil, orNothing(h.released(h.AwaitRelease())) })
}

// The method succeeded checks that a call that grants nothing has ended without an error.
func (r *request) succeeded(call string) {
	r.scene.Helper()
	if r.end(); !errors.Is(r.err, errNothing) {
		r.scene.Errorf("%s: %v, want nil", call, r.err)
	}
}

// errNothing is the error of a request whose call grants nothing and has succeeded.
var errNothing = errors.New("nothing is granted")

func orNothing(err error) error {
	if err == nil {
		return errNothing
	}
	return err
}

func requeueGivesUp(s *scene) {
	a, b := s.process(), s.process()
	ended, cancel := context.WithCancel(s.Context())
	cancel()
	s.givesUp(ended, a, b)
	for _, m := range []mishap{lost, cancelled, both} {
		s.each(a, m, func(ctx context.Context) { s.givesUp(ctx, a, b) })
	}
}

// givesUp requeues a grant of a while b waits for the lock. The requeue may fail. From the start, the test also waits for the end of the
// old grant.
func (s *scene) givesUp(ctx context.Context, a, b *proc) {
	s.Helper()
	old := a.acquire()
	waiting := b.queue()
	gone := s.awaitRelease(old)
	again := a.requeue(ctx, old)
	h := waiting.granted()
	gone.succeeded("AwaitRelease")
	if err := old.Err(); !errors.Is(err, second.ErrReleased) {
		s.Errorf("Err of a grant that was requeued: %v, want ErrReleased", err)
	}
	s.release(h)
	again.settle()
	s.none()
}
