package command

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	mostAside = 64 << 10    // bytes of messages that are kept for a slow reader
	lastWords = time.Second // for how long the end of the process waits for that
)

// An aside is a writer that never blocks, for code that must not wait for the reader of its messages, which may have stopped reading. A
// goroutine passes the messages on, in order. If too many are waiting, the oldest are dropped.
type aside struct {
	to io.Writer

	mu      sync.Mutex // guards the fields below
	waiting [][]byte   // messages
	size    int        // of those
	omitted int        // messages that were there before those
	idle    chan struct{}
}

// speakAside makes messages asynchronous from now on. Before the program exits, Main waits until these messages are written, for
// lastWords at most.
func (in *invocation) speakAside() {
	a := &aside{to: in.stderr}
	in.stderr, in.flush = a, a.flush
}

// Write queues one message. Write never fails.
func (a *aside) Write(message []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting = append(a.waiting, append([]byte(nil), message...))
	a.size += len(message)
	for a.size > mostAside && len(a.waiting) > 1 {
		a.takeLocked()
		a.omitted++
	}
	if a.idle == nil {
		a.idle = make(chan struct{})
		go a.pass()
	}
	return len(message), nil
}

// pass writes queued messages until there are none.
func (a *aside) pass() {
	for {
		message := a.next()
		if message == nil {
			return
		}
		a.to.Write(message) // an error cannot be reported
	}
}

// next returns nil when no message is queued.
func (a *aside) next() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.omitted > 0:
		text := fmt.Appendf(nil, "tierlock: %d messages were dropped here, because the output was not read in time\n", a.omitted)
		a.omitted = 0
		return text
	case len(a.waiting) > 0:
		return a.takeLocked()
	}
	close(a.idle)
	a.idle = nil
	return nil
}

func (a *aside) takeLocked() []byte {
	oldest := a.waiting[0]
	a.waiting = a.waiting[1:]
	a.size -= len(oldest)
	return oldest
}

// flush waits until all messages are written, for the time lastWords at most.
func (a *aside) flush() {
	a.mu.Lock()
	idle := a.idle
	a.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-time.After(lastWords):
	}
}
