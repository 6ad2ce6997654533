package notice

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	room      = 256         // lines that may wait for a logger
	flushTime = time.Second // for which [Aside]'s flush waits
)

// Aside returns a logger that passes lines on to l, in order, from a goroutine of its own. Therefore no call waits for the program's
// handler, which may block (on a full pipe, for example), panic, or call back. While l is blocked, up to 256 lines are queued. Further
// lines are dropped, and a later line says how many. The goroutine exists only while lines are queued.
//
// Flush waits until l has handled all lines so far, for a second at most. A nil l is [slog.Default] at the time of each line.
func Aside(l *slog.Logger) (aside *slog.Logger, flush func()) {
	q := &lines{logger: l}
	return slog.New(handler{q, q.handler}), q.flush
}

// A handler puts lines into a queue. It calls nothing of the logger itself, not even Enabled.
type handler struct {
	queue *lines
	of    func() slog.Handler // of the logger, with what was added to this one
}

func (h handler) Enabled(context.Context, slog.Level) bool { return true }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	h.queue.add(line{ctx: ctx, record: r.Clone(), of: h.of})
	return nil
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.queue, func() slog.Handler { return h.of().WithAttrs(attrs) }}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.queue, func() slog.Handler { return h.of().WithGroup(name) }}
}

// A line is a log record that waits for the logger.
type line struct {
	ctx     context.Context
	record  slog.Record
	of      func() slog.Handler
	missing drops // right before it
}

// drops count the dropped lines of each level.
type drops map[slog.Level]int

// lines are the queue of one logger.
type lines struct {
	logger *slog.Logger

	mu      sync.Mutex // guards the fields below; never held across a call of the logger
	queue   []line
	dropped drops         // since the last line of the queue
	empty   chan struct{} // closed when a goroutine that passes lines on has passed on all; nil while there is none
}

func (q *lines) handler() slog.Handler { return cmp.Or(q.logger, slog.Default()).Handler() }

func (q *lines) add(l line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == room {
		if q.dropped == nil {
			q.dropped = make(drops)
		}
		q.dropped[l.record.Level]++
		return
	}
	l.missing, q.dropped = q.dropped, nil
	q.queue = append(q.queue, l)
	if q.empty == nil {
		q.empty = make(chan struct{})
		go q.pass()
	}
}

// pass passes all queued lines on.
func (q *lines) pass() {
	all := false
	defer func() {
		if !all { // the handler has called runtime.Goexit: the other lines are for another goroutine
			go q.pass()
		}
	}()
	for {
		l, missing, ok := q.next()
		q.tellMissing(missing)
		if all = !ok; all {
			return
		}
		if l.of == nil { // there is none after those that are missing
			continue
		}
		if h := l.of(); h.Enabled(l.ctx, l.record.Level) {
			_ = h.Handle(l.ctx, l.record) // as slog.Logger does
		}
	}
}

// next takes the first line from the queue, and returns how many lines were dropped before it. If lines were
// dropped after the last one, it returns an empty line with their number.
func (q *lines) next() (l line, missing drops, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.queue) > 0:
		l, q.queue = q.queue[0], q.queue[1:]
		return l, l.missing, true
	case q.dropped != nil:
		missing, q.dropped = q.dropped, nil
		return line{}, missing, true
	}
	close(q.empty)
	q.empty, q.queue = nil, nil
	return line{}, nil, false
}

// tellMissing logs how many lines were dropped, leaving out levels that the logger would not have written.
func (q *lines) tellMissing(dropped drops) {
	ctx, missing, logger := context.Background(), 0, slog.New(q.handler())
	for level, n := range dropped {
		if logger.Enabled(ctx, level) {
			missing += n
		}
	}
	if missing > 0 {
		logger.Warn("tier: log lines were dropped because the logger was blocked", "lines", missing)
	}
}

func (q *lines) flush() {
	q.mu.Lock()
	empty := q.empty
	q.mu.Unlock()
	if empty == nil {
		return
	}
	select {
	case <-empty:
	case <-time.After(flushTime):
	}
}
