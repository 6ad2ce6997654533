package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
)

// An ensemble agrees on, logs and answers a request, whatever is in it. So batches about different paths that wait anyway leave as a
// group: their transactions as one request, and their lists as another one right behind. They wait for no longer than a quarter of a round
// trip, and only while other groups are under way.

const (
	enoughUnderWay = 1         // groups; with fewer a batch leaves at once
	mostOfGroup    = 64        // batches in one request
	mostBytes      = 128 << 10 // of a request, about: servers refuse a frame above their jute.maxbuffer, 1 MB by default
	mostListed     = 1 << 20   // bytes of lists in one answer, about
	mostPaths      = 1 << 15   // that are remembered
)

// errAgain says that nothing was done because of another request of the group.
var errAgain = errors.New("another request of the group has failed")

// Gather is Ask for a transaction about nodes below path, and maybe reads behind it that set no watch: they may leave in a group. They
// do not leave at all if ctx ends before that; the error is then zk.ErrNoServer. With what makes the path before it they leave alone.
//
// A transaction that fails is the end of its group, so one about a path that may be missing leaves alone; and if another one
// fails, this one is sent again, alone. In a group there is one transaction for each path: what it creates has its id for a token.
func (l *dialed) Gather(ctx context.Context, path string, requests ...Request) (answers []Answer) {
	b := newBatch(requests)
	last := len(requests) - 1
	for ; last > 0; last-- {
		if _, writes := requests[last].(Transaction); writes {
			break
		}
	}
	if last == 0 && l.paths.known(path) {
		b.ctx, b.path = ctx, path
	}
	answers = l.send(b)
	if errors.Is(answers[last].Err, errAgain) {
		answers = l.Ask(requests...)
	}
	l.paths.note(path, answers[last].Err)
	return answers
}

// gather reports whether a batch is to be sent now, alone or with those that have come meanwhile. Else another one takes it along.
func (s *socket) gather(b *batch) bool {
	if b.path == "" {
		return true
	}
	s.mu.Lock()
	s.waiting = append(s.waiting, b)
	first, wait := len(s.waiting) == 1, s.trip/4
	var leave chan struct{}
	if first && s.underWay >= enoughUnderWay {
		leave = make(chan struct{})
		s.leave = leave
	}
	s.mu.Unlock()
	if leave != nil {
		select {
		case <-leave:
		case <-time.After(wait):
		}
	}
	return first
}

// leaveLocked has those that wait leave.
func (s *socket) leaveLocked() {
	if s.leave != nil {
		close(s.leave)
		s.leave = nil
	}
}

// landedLocked follows the last answer to a group, which was sent at a time.
func (s *socket) landedLocked(sent time.Duration) {
	s.underWay--
	s.trip = s.dialed.link.Now() - sent
	s.leaveLocked()
}

// join returns which requests of batches are sent as one: transactions, and then lists. A batch without a path shares nothing.
func (l *dialed) join(batches []*batch) [][]place {
	var writes, reads [][]place
	bytes, lists := 0, l.listsInOne()
	for _, b := range batches {
		for i, q := range b.requests {
			p := place{b, i}
			switch q := q.(type) {
			case Transaction:
				size := q.size()
				bytes += size
				if n := len(writes); n == 0 || len(writes[n-1]) == mostOfGroup || bytes > mostBytes || about(writes[n-1], b.path) {
					writes, bytes = append(writes, nil), size
				}
				writes[len(writes)-1] = append(writes[len(writes)-1], p)
			default:
				if n := len(reads); n == 0 || b.path == "" || len(reads[n-1]) == lists {
					reads = append(reads, nil)
				}
				reads[len(reads)-1] = append(reads[len(reads)-1], p)
			}
		}
	}
	return append(writes, reads...)
}

// about reports whether one of the requests is about path.
func about(places []place, path string) bool {
	return slices.ContainsFunc(places, func(p place) bool { return p.batch.path == path })
}

// listsInOne is how many lists are asked for as one: an answer must not come near the largest frame, and servers before 3.6 give none.
func (l *dialed) listsInOne() int {
	if l.oneByOne.Load() {
		return 1
	}
	return max(1, min(mostOfGroup, mostListed/int(1+l.longest.Load())))
}

// size is about how long the transaction is.
func (t Transaction) size() (bytes int) {
	for _, op := range t {
		switch op := op.(type) {
		case *zk.CreateRequest:
			bytes += 64 + len(op.Path) + len(op.Data)
			for _, a := range op.Acl {
				bytes += 12 + len(a.Scheme) + len(a.ID)
			}
		case *zk.DeleteRequest:
			bytes += 32 + len(op.Path)
		}
	}
	return bytes
}

// opOfAll is the type of requests that are sent as one.
func opOfAll(places []place) int32 {
	_, writes := places[0].request().(Transaction)
	switch {
	case len(places) == 1:
		return places[0].request().op()
	case writes:
		return wire.OpMulti
	}
	return wire.OpMultiRead
}

// encodeAll writes the body of requests that are sent as one.
func encodeAll(e *wire.Encoder, places []place) {
	if len(places) == 1 {
		places[0].request().encode(e)
		return
	}
	for _, p := range places {
		switch q := p.request().(type) {
		case Transaction:
			q.encodeOps(e)
		case read:
			e.MultiHeader(wire.MultiHeader{Op: q.part(), Code: -1})
			q.encode(e)
		}
	}
	e.MultiHeader(wire.LastOfMulti)
}

// decodeAll reads what a server has answered to requests that were sent as one.
func (l *dialed) decodeAll(d *wire.Decoder, places []place) {
	switch opOfAll(places) {
	case wire.OpMulti:
		if len(places) > 1 {
			decodeTransactions(d, places)
			return
		}
	case wire.OpMultiRead:
		l.decodeLists(d, places)
		return
	}
	size := len(d.Rest)
	places[0].request().decode(d, places[0].answer())
	if r, ok := places[0].request().(read); ok && r.list {
		l.noteList(size)
	}
}

// decodeTransactions tells of one that has failed why it did. Then none was executed.
func decodeTransactions(d *wire.Decoder, places []place) {
	failed, err := failedOf(*d, places)
	for i, p := range places {
		switch {
		case err == nil:
			p.request().(Transaction).decodeOps(d, p.answer())
		case i == failed:
			p.answer().Err = err
		default:
			p.answer().Err = errAgain
		}
	}
}

// failedOf returns which transaction has failed, and why. An error is answered to each operation, which says of those before that they have
// not failed.
func failedOf(d wire.Decoder, places []place) (index int, err error) {
	for i, p := range places {
		for range p.request().(Transaction) {
			if d.MultiHeader().Op != wire.OpError {
				return 0, nil
			}
			if err := wire.CodeError(d.Int32()); err != nil {
				return i, err
			}
		}
	}
	return 0, nil
}

// decodeLists reads each, or why it was refused.
func (l *dialed) decodeLists(d *wire.Decoder, places []place) {
	for _, p := range places {
		q, a, size := p.request().(read), p.answer(), len(d.Rest)
		switch h := d.MultiHeader(); h.Op {
		case q.part():
			q.decode(d, a)
			l.noteList(size - len(d.Rest))
			continue
		case wire.OpError: // so is the end, with no code behind it
			a.Err = wire.CodeError(d.Int32())
		}
		if a.Err == nil {
			a.Err = fmt.Errorf("the server did not answer the read of %s", q.path)
		}
	}
}

// noteList notes the length of a list. One goroutine reads at a time.
func (l *dialed) noteList(bytes int) {
	l.longest.Store(max(l.longest.Load(), int64(bytes)))
}

// paths are some of those that are known to be there.
type paths struct {
	mu    sync.Mutex // guards the field below
	there map[string]struct{}
}

func (p *paths) known(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.there[path]
	return known
}

// note takes what became of a transaction about nodes below path.
func (p *paths) note(path string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case errors.Is(err, zk.ErrNoNode):
		delete(p.there, path)
	case err != nil:
	case p.there == nil || len(p.there) >= mostPaths:
		p.there = make(map[string]struct{})
		fallthrough
	default:
		p.there[path] = struct{}{}
	}
}
