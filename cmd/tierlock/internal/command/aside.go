package command

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	mostAside = 64 << 10    // how many bytes of messages are kept if the reader is slow
	lastWords = time.Second // how long the process waits at its end until the messages are written
)

// An aside is a writer that never blocks. It is for code that must not wait for the reader of its messages, because that reader may have
// stopped reading. A goroutine writes the messages in order. If there are too many, the oldest messages are dropped.
type aside struct {
	to io.Writer

	mu      sync.Mutex // guards the fields below
	waiting [][]byte   // the messages that are not written yet
	size    int        // the number of bytes in waiting
	omitted int        // the number of dropped messages, which were older than waiting
	idle    chan struct{}
}

// speakAside makes the output of messages asynchronous. Before the program exits, Main waits until the messages are written, but not longer
// than lastWords.
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

// pass writes queued messages until there are no more.
func (a *aside) pass() {
	for {
		message := a.next()
		if message == nil {
			return
		}
		a.to.Write(message) // there is no way to report an error
	}
}

// next returns the next queued message. If there is none, it returns nil.
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

// flush waits until all messages are written, but not longer than lastWords.
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
