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

// An ensemble agrees on each request, logs it and answers it. This costs the same, whatever the request contains. Therefore batches about
// different paths leave as a group if they have to wait anyway. The transactions of a group are one request, its watches are a second one,
// and its reads are a third one directly after that. A batch waits for at most a quarter of a round trip, and only while other groups have
// no answer.

const (
	mostOfGroup = 64        // the number of batches in one request
	mostBytes   = 128 << 10 // the approximate size of a request; servers refuse a frame above their jute.maxbuffer, which is 1 MB by default
	mostListed  = 1 << 20   // the approximate size of the lists in one answer, in bytes
	mostPaths   = 1 << 15   // the number of paths that are remembered
)

var (
	// errAgain says that a request was not executed because another request of its group failed.
	errAgain = errors.New("another request of the group has failed")
	// errMisfit says that an answer does not fit its request. The outcome of the request is then unknown.
	errMisfit = errors.New("the server's answer does not fit the request")
)

// Gather is like Ask, for a transaction about nodes below path that may be followed by reads, or for reads alone. Such requests may leave
// in a group. If ctx ends before they leave, they are not sent, and the error is zk.ErrNoServer. If there are several transactions, they
// are alternatives to each other, and leave alone.
//
// If one transaction fails, its whole group fails. Therefore a transaction leaves alone if it may fail, because the path may be missing or
// the last transaction of the same kind was refused. If another transaction of the group fails, this one is sent again, alone. A group has
// only one transaction for each path, because everything that one transaction creates has the same id, which is the token.
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
		if answers[i].Err == nil { // the alternatives are refused because this transaction was executed
			break
		}
	}
	return answers
}

// gather reports whether to send b now, together with the batches that have come in the meantime. If it returns false, another batch takes
// b along.
func (s *socket) gather(b *batch) bool {
	s.mu.Lock()
	s.waiting = append(s.waiting, b)
	first, wait := len(s.waiting) == 1, s.trip/4
	var leave chan struct{}
	if first && !s.dead && s.underWay > 0 { // after the end of the connection there would be no answer that lets the batches leave
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

// leaveLocked lets the waiting batches leave.
func (s *socket) leaveLocked() {
	if s.leave != nil {
		close(s.leave)
		s.leave = nil
	}
}

// join decides which requests of batches are combined into one request: first transactions, and then reads. A batch without a path is not
// combined. If there is only one batch, its watches stay separate.
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

// listsInOne returns how many lists are combined into one request. An answer must stay far below the largest frame, and servers before 3.6
// cannot combine lists.
func (l *dialed) listsInOne() int {
	if l.oneByOne.Load() {
		return 1
	}
	return max(1, min(mostOfGroup, mostListed/int(1+l.longest.Load())))
}

// opOfAll returns the type of the combined request.
func opOfAll(parts []*part) int32 {
	ops := parts[0].ops
	_, reads := ops[0].(read)
	switch op := opOf(ops[0]); {
	case len(parts) > 1 && reads:
		return wire.OpMultiRead
	case len(parts) > 1, len(ops) > 1, op == wire.OpCheck: // a server accepts this operation only in such a request
		return wire.OpMulti
	case op == wire.OpGetChildren:
		return wire.OpGetChildren2 // the library uses this type, too
	default:
		return op
	}
}

// several reports whether a request of this type consists of operations with headers.
func several(op int32) bool { return op == wire.OpMulti || op == wire.OpMultiRead }

// appendBody appends the body of the combined request.
func appendBody(e wire.Encoder, op int32, parts []*part) wire.Encoder {
	if op == wire.OpSetWatches {
		q := wire.SetWatches{Zxid: math.MaxInt64} // the server sends no events about earlier changes, because the reads that follow show them
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

// decodeAll decodes the answer to a combined request. If one operation was refused, all transactions have failed, whatever the answers to
// the others say.
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
		l.longest.Store(max(l.longest.Load(), int64(size-len(d.Rest)))) // not a race: only one goroutine reads at a time
	}
	if several(op) && !d.MultiHeader().Done {
		fail(parts, errMisfit)
	}
}

// fail gives all parts of a combined request the same error.
func fail(parts []*part, err error) {
	for _, p := range parts {
		p.answer.Err = err
	}
}

// The type kinds is a set of kinds of transactions. There are three kinds: transactions that create, that delete, and that do both. Below a
// path, one kind may be refused while the others are permitted.
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

// succeeds reports whether a transaction will probably succeed. This is the case if path existed at the last transaction about it, and if
// the last transaction of this kind was not refused.
func (l *dialed) succeeds(path string, t Transaction) bool {
	refused, known := l.paths.Load(path)
	return known && refused.(kinds)&kindOf(t) == 0
}

// note records the outcome of a transaction about nodes below path. If two goroutines record an outcome at the same time, one outcome may
// be lost. This costs one request.
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
