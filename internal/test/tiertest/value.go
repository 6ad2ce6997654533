package tiertest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tierlock/tierlock/internal/second"
)

var valuePromises = []promise{
	{name: "value", text: "Any process can load the newest value and the token of its writer; the value stays after the process ends, " +
		"until a holder removes it", test: valueStays},
	{name: "value-large", text: "A value can be empty, can be up to 16 KiB long, and can contain any bytes", test: valueOfAnyBytes},
	{name: "value-guarded", text: "A holder that has released or lost the lock cannot save a value", test: valueGuarded},
	{name: "value-writes", text: "Saving a value takes one write", alone: true, test: saveIsOneWrite},
	{name: "value-lost", text: "Saved values take effect in the order of the calls of Save, even if any message to the process is lost",
		test: savesOverLostMessages},
	{name: "value-ends", text: "If the context of Save ends at any step, the error says whether the value may have been saved",
		test: saveEnds},
	{name: "value-frozen", text: "If the store executes a Save late, after an outage, this Save does not replace the value of a later Save",
		alone: true,
		test:  saveThatIsLate},
}

// The method save saves a value. It takes no longer than any call may take.
func (h *hold) save(ctx context.Context, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, h.scene.patience())
	defer cancel()
	return h.Save(ctx, h.Err, data)
}

func (h *hold) saves(data string) {
	h.scene.Helper()
	if err := h.save(h.scene.Context(), []byte(data)); err != nil {
		h.scene.Fatalf("Save %q: %v", data, err)
	}
}

func (h *hold) forgets() {
	h.scene.Helper()
	if err := h.save(h.scene.Context(), nil); err != nil {
		h.scene.Fatalf("Save nothing: %v", err)
	}
}

// The method load returns the value at the path.
func (p *proc) load() (second.Value, error) {
	ctx, cancel := context.WithTimeout(p.scene.Context(), p.scene.patience())
	defer cancel()
	return p.claim.Load(ctx)
}

// The method finds checks that a process loads the value data, saved by a holder with the given token. If the token is 0, there must be no
// value.
func (p *proc) finds(data string, token int64) {
	p.scene.Helper()
	v, err := p.load()
	switch {
	case token == 0 && !errors.Is(err, second.ErrNoValue):
		p.scene.Errorf("Load: %q, %v; want no value", v.Data, err)
	case token != 0 && (err != nil || string(v.Data) != data || v.Token != token || v.Saved.IsZero()):
		p.scene.Errorf("Load: %q with token %d, saved %v, %v; want %q with token %d", v.Data, v.Token, v.Saved, err, data, token)
	}
}

func valueStays(s *scene) {
	a, b := s.process(), s.process()
	a.finds("", 0)
	for _, mode := range alone {
		first := a.as(mode).acquire()
		waiting := b.as(mode).queue() // before what it is to replace was saved
		first.saves("one")
		first.saves("two")
		b.as(second.Reading).finds("two", first.Token())
		s.release(first)
		b.finds("two", first.Token())
		next := waiting.granted()
		next.saves("next")
		a.finds("next", next.Token())
		next.forgets()
		a.finds("", 0)
		next.forgets()
		next.saves("three")
		a.finds("three", next.Token())
		next.saves("four")
		next.forgets()
		a.finds("", 0)
		next.saves("five")
		s.release(next)
	}
	token := s.last().Token()
	if err := b.Close(); err != nil {
		s.Errorf("Close: %v", err)
	}
	a.finds("five", token)
	other, err := a.Claim(s.path+"-other", second.Options{})
	if err != nil {
		s.Fatalf("Claim: %v", err)
	}
	if v, err := other.Load(s.Context()); !errors.Is(err, second.ErrNoValue) {
		s.Errorf("Load at another path: %q, %v", v.Data, err)
	}
	h := a.acquire()
	h.forgets()
	s.release(h)
	s.none()
}

func valueOfAnyBytes(s *scene) {
	a, b := s.process(), s.process()
	h := a.acquire()
	for _, data := range []string{strings.Repeat("x\x00\xff\n'", 16<<10/5), "", "\n", "\x00", "tierlock 1 2 3\n"} {
		h.saves(data)
		b.finds(data, h.Token())
	}
	h.forgets()
	s.release(h)
}

func valueGuarded(s *scene) {
	a, b := s.process(), s.process()
	h := a.acquire()
	h.saves("mine")
	s.release(h)
	if err := h.save(s.Context(), []byte("late")); !errors.Is(err, second.ErrReleased) {
		s.Errorf("Save after the release: %v", err)
	}
	a.finds("mine", h.Token())
	if s.Remove != nil {
		h = a.acquire()
		s.Remove(s.path, 0)
		s.awaitLeft(0)
		// The client may not know of the removal yet, but the store does.
		err := h.Save(s.Context(), func() error { return nil }, []byte("late"))
		if !errors.Is(err, second.ErrLost) {
			s.Errorf("Save of a removed contender: %v", err)
		}
		h.Release()
		h = b.acquire()
		b.finds("mine", s.grants[0].Token())
	} else {
		h = b.acquire()
	}
	wrong := errors.New("the caller may not")
	if err := h.Save(s.Context(), func() error { return wrong }, []byte("refused")); !errors.Is(err, wrong) {
		s.Errorf("Save that its check refuses: %v", err)
	}
	h.forgets()
	s.release(h)
	s.none()
}

func saveIsOneWrite(s *scene) {
	h := s.process().acquire()
	h.saves("the first")
	s.costs("a save", 1, 1, func() { h.saves("the second") })
	h.forgets()
	s.release(h)
}

// Each round saves twice under one hold. Whatever happens to the first save, the second one counts.
func savesOverLostMessages(s *scene) {
	a, b := s.process(), s.process()
	round := 0
	s.each(a, lost, func(context.Context) {
		round++
		r := a.begin(a.claim.Acquire)
		if r.end(); r.err != nil {
			s.Fatalf("Acquire: %v", r.err)
		}
		h := r.hold
		first, second := fmt.Sprint("first ", round), fmt.Sprint("second ", round)
		err1 := h.save(s.Context(), []byte(first))
		err2 := h.save(s.Context(), []byte(second))
		s.settled()
		s.judgeSaves(b, h, err1, err2, second)
		h.leave()
		h.Grant.Release() // the grant may have been lost together with a message
	})
	s.none()
}

// judgeSaves checks what was loaded after two saves. If a store loses the lock when a message is lost, that may have happened at any time.
func (s *scene) judgeSaves(p *proc, h *hold, err1, err2 error, want string) {
	s.Helper()
	for _, err := range []error{err1, err2} {
		if err != nil && (h.Err() == nil || !errors.Is(err, second.ErrLost) && !errors.Is(err, second.ErrUnknown)) {
			s.Errorf("Save: %v, and Err of its hold is %v", err, h.Err())
		}
	}
	if err2 == nil {
		p.finds(want, h.Token())
	}
}

func saveEnds(s *scene) {
	a, b := s.process(), s.process()
	h := a.acquire()
	h.saves("before")
	round := 0
	for _, m := range []mishap{cancelled, both} {
		s.each(a, m, func(ctx context.Context) {
			if h.Err() != nil { // the grant was lost together with a message
				h.Release()
				h = a.acquire()
				h.saves("before")
			}
			round++
			old, err := b.load()
			if err != nil {
				s.Fatalf("Load: %v", err)
			}
			first := fmt.Sprint("first ", round)
			err = h.Save(ctx, h.Err, []byte(first))
			if err == nil {
				b.finds(first, h.Token())
			} else if !errors.Is(err, second.ErrUnknown) && !errors.Is(err, second.ErrLost) {
				if !errors.Is(err, context.Canceled) { // that is the answer if another message came first, and nothing was sent
					s.Errorf("Save at the end of its context: %v", err)
				}
				b.finds(string(old.Data), old.Token)
			}
			last := fmt.Sprint("second ", round)
			err = h.save(s.Context(), []byte(last))
			s.settled()
			s.judgeSaves(b, h, nil, err, last)
		})
	}
	h.Release()
	s.none()
}

func saveThatIsLate(s *scene) {
	s.needs(s.Freeze != nil, "freeze the store")
	a, b := s.process(), s.process()
	h := a.acquire()
	h.saves("before")
	thaw := s.freeze()
	ctx, cancel := context.WithTimeout(s.Context(), s.moment())
	defer cancel()
	err := h.Save(ctx, h.Err, []byte("first"))
	thaw()
	if !errors.Is(err, second.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("Save while the store does not answer: %v, want ErrUnknown and the end of its context", err)
	}
	if err = h.save(s.Context(), []byte("second")); err == nil {
		s.settled()
		b.finds("second", h.Token())
	} else if h.Err() == nil {
		s.Errorf("Save when the store answers again: %v", err)
	}
	h.Release()
	s.none()
}
