package notice

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	room      = 256         // the number of lines that can wait for a logger
	flushTime = time.Second // how long the flush function of [Aside] waits
)

// Aside returns a logger that passes lines on to l, in order, from a separate goroutine. A call of the returned logger does therefore not
// wait for the program's handler. That handler may block (on a full pipe, for example), panic, or call back. While it is blocked, up to
// 256 lines are queued. Further lines are dropped, and a later line tells how many. The goroutine exists only while lines are queued.
//
// The function flush waits until l has handled all lines so far, but for a second at most. If l is nil, each line goes to the logger that
// is then [slog.Default].
func Aside(l *slog.Logger) (aside *slog.Logger, flush func()) {
	q := &lines{logger: l}
	return slog.New(handler{q, q.handler}), q.flush
}

// A handler puts lines into a queue. Its methods do not call the logger, not even its Enabled, because that may block.
type handler struct {
	queue *lines
	of    func() slog.Handler // returns the logger's handler, with the attributes and groups that were added to this handler
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
	missing drops // the lines that were dropped right before this one
}

// A drops has the number of dropped lines of each level.
type drops map[slog.Level]int

// A lines is the queue of log lines for one logger.
type lines struct {
	logger *slog.Logger

	mu      sync.Mutex // guards the fields below; never held across a call of the logger
	queue   []line
	dropped drops         // the lines that were dropped after the last line of the queue
	empty   chan struct{} // closed when all lines are passed on; nil while no goroutine passes lines on
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
		if !all { // the handler has called runtime.Goexit, so another goroutine has to pass on the remaining lines
			go q.pass()
		}
	}()
	for {
		l, missing, ok := q.next()
		q.tellMissing(missing)
		if all = !ok; all {
			return
		}
		if l.of == nil { // no line follows the dropped ones
			continue
		}
		if h := l.of(); h.Enabled(l.ctx, l.record.Level) {
			_ = h.Handle(l.ctx, l.record) // slog.Logger ignores this error, too
		}
	}
}

// next takes the first line from the queue, and returns how many lines were dropped before it. If the queue is empty and lines were
// dropped after its last line, next returns an empty line and the number of dropped lines. ok is false if nothing is left.
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

// tellMissing logs how many lines were dropped. It does not count lines of levels that the logger does not write.
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
