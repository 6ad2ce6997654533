package link

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
)

// An ensemble agrees on, logs and answers a request, whatever is in it. So batches about different paths that wait anyway leave as a
// group: their transactions as one request, their watches as another one, and their reads as a third one right behind. They wait for no
// longer than a quarter of a round trip, and only while other groups are under way.

const (
	mostOfGroup = 64        // batches in one request
	mostBytes   = 128 << 10 // of a request, about: servers refuse a frame above their jute.maxbuffer, 1 MB by default
	mostListed  = 1 << 20   // bytes of lists in one answer, about
	mostPaths   = 1 << 15   // that are remembered
)

var (
	// errAgain says that nothing was done because of another request of the group.
	errAgain = errors.New("another request of the group has failed")
	// errMisfit leaves the outcome unknown.
	errMisfit = errors.New("the server answered something else than was asked")
)

// Gather is Ask for a transaction about nodes below path and maybe reads behind it, or for reads: they may leave in a group. They
// do not leave at all if ctx ends before that; the error is then zk.ErrNoServer. Several transactions, which are ways to do one
// thing, leave alone.
//
// A transaction that fails is the end of its group, so one that may fail leaves alone: where the path may be missing, and where the last
// one of its kind was refused. If another one fails, this one is sent again, alone. In a group there is one transaction for each path: what
// it creates has its id for a token.
func (l *dialed) Gather(ctx context.Context, path string, requests ...Request) (answers []Answer) {
	b := newBatch(requests)
	last, writes := len(requests), false
	for last > 0 && !writes {
		last--
		_, writes = requests[last].(Transaction)
	}
	if last == 0 && (!writes || l.succeeds(path, requests[0].(Transaction))) {
		b.ctx, b.path = ctx, path
	}
	answers = l.send(b)
	if errors.Is(answers[last].Err, errAgain) {
		answers = l.Ask(requests...)
	}
	for i := 0; writes && i <= last; i++ {
		l.note(path, requests[i].(Transaction), answers[i].Err)
		if answers[i].Err == nil { // the other ways are refused because of it
			break
		}
	}
	return answers
}

// gather reports whether a batch is to be sent now, with those that have come meanwhile. Else another one takes it along.
func (s *socket) gather(b *batch) bool {
	s.mu.Lock()
	s.waiting = append(s.waiting, b)
	first, wait := len(s.waiting) == 1, s.trip/4
	var leave chan struct{}
	if first && !s.dead && s.underWay > 0 { // no group lands any more, once it is
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

// join returns which requests of batches are sent as one: transactions, and then reads. A batch without a path shares nothing, and one
// alone not what sets a watch.
func (l *dialed) join(batches []*batch) [][]*part {
	var writes, reads [][]*part
	bytes, lists := 0, l.listsInOne()
	for _, b := range batches {
		for i := range b.parts {
			p := &b.parts[i]
			switch p.ops[0].(type) {
			case read:
				apart := b.path == "" || len(batches) == 1 && p.watches()
				if n := len(reads); n == 0 || apart || len(reads[n-1]) == lists {
					reads = append(reads, nil)
				}
				reads[len(reads)-1] = append(reads[len(reads)-1], p)
			default:
				size := len(p.encoded)
				bytes += size
				if n := len(writes); n == 0 || len(writes[n-1]) == mostOfGroup || bytes > mostBytes || about(writes[n-1], b.path) {
					writes, bytes = append(writes, nil), size
				}
				writes[len(writes)-1] = append(writes[len(writes)-1], p)
			}
		}
	}
	return append(writes, reads...)
}

// about reports whether one of the requests is about path.
func about(parts []*part, path string) bool {
	return slices.ContainsFunc(parts, func(p *part) bool { return p.batch.path == path })
}

// listsInOne is how many lists are asked for as one: an answer must not come near the largest frame, and servers before 3.6 give none.
func (l *dialed) listsInOne() int {
	if l.oneByOne.Load() {
		return 1
	}
	return max(1, min(mostOfGroup, mostListed/int(1+l.longest.Load())))
}

// opOfAll is the type of requests that are sent as one.
func opOfAll(parts []*part) int32 {
	ops := parts[0].ops
	_, reads := ops[0].(read)
	switch op := opOf(ops[0]); {
	case len(parts) > 1 && reads:
		return wire.OpMultiRead
	case len(parts) > 1, len(ops) > 1, op == wire.OpCheck: // which a server takes in no other way
		return wire.OpMulti
	case op == wire.OpGetChildren:
		return wire.OpGetChildren2 // as the library does
	default:
		return op
	}
}

// several reports whether requests of a type are operations with headers.
func several(op int32) bool { return op == wire.OpMulti || op == wire.OpMultiRead }

// appendBody appends requests that are sent as one.
func appendBody(e wire.Encoder, op int32, parts []*part) wire.Encoder {
	if op == wire.OpSetWatches {
		q := wire.SetWatches{Zxid: math.MaxInt64} // no change from before they are set counts: the reads behind tell
		for _, p := range parts {
			if r := p.ops[0].(read); r.list {
				q.Children = append(q.Children, r.path)
			} else {
				q.Data = append(q.Data, r.path)
			}
		}
		e.SetWatches(q)
		return e
	}
	if !several(op) {
		return append(e, parts[0].encoded[wire.MultiHeaderSize:]...)
	}
	for _, p := range parts {
		e = append(e, p.encoded...)
	}
	e.MultiHeader(wire.LastOfMulti)
	return e
}

// decodeAll reads what a server has answered to requests that were sent as one. The refusal of an operation is that of all transactions:
// what is answered to the others says nothing.
func (l *dialed) decodeAll(d *wire.Decoder, op int32, parts []*part) {
	for _, p := range parts {
		a, size := p.answer, len(d.Rest)
		for _, asked := range p.ops {
			if !several(op) {
				a.decode(d, asked)
			} else if refusal := a.decodeOneOf(d, asked); refusal != nil && op == wire.OpMulti {
				fail(parts, errAgain)
				a.Err, a.Refused = refusal, asked
				return
			}
		}
		l.longest.Store(max(l.longest.Load(), int64(size-len(d.Rest)))) // one goroutine reads at a time
	}
	if several(op) && !d.MultiHeader().Done {
		fail(parts, errMisfit)
	}
}

// fail has requests that were sent as one share an error.
func fail(parts []*part, err error) {
	for _, p := range parts {
		p.answer.Err = err
	}
}

// kinds is a set of kinds of transactions: those that create, those that delete, and those that do both. Below a path one kind may be
// refused and the others not.
type kinds uint8

func kindOf(t Transaction) kinds {
	var does int
	for _, op := range t {
		switch op.(type) {
		case *zk.CreateRequest:
			does |= 1
		case *zk.DeleteRequest:
			does |= 2
		}
	}
	return 1 << does
}

// succeeds reports whether path was there at the last transaction about it, and the last one of this kind was not refused.
func (l *dialed) succeeds(path string, t Transaction) bool {
	refused, known := l.paths.Load(path)
	return known && refused.(kinds)&kindOf(t) == 0
}

// note takes what became of a transaction about nodes below path. What two learn at the same time may be forgotten: it costs a request.
func (l *dialed) note(path string, t Transaction, err error) {
	was, known := l.paths.Load(path)
	before, _ := was.(kinds)
	after := before
	switch {
	case errors.Is(err, zk.ErrNoNode):
		l.paths.Delete(path)
		return
	case err == nil:
		after &^= kindOf(t)
	case known && wire.Refuses(err):
		after |= kindOf(t)
	default:
		return
	}
	if known && after == before {
		return
	}
	l.paths.Store(path, after)
	if !known && l.noted.Add(1)%mostPaths == 0 {
		l.paths.Clear()
	}
}
