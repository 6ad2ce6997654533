// Package fate has what can become of a frame between a client and a server. The model (zktest) goes by all of it, the proxy in front
// of a real server (internal/test/faultproxy) by Pass and Cut.
package fate

import (
	"fmt"
	"slices"
	"time"

	"github.com/tierlock/tierlock/internal/wire"
)

// An Action is what happens to a frame. The zero Action lets it through.
type Action struct {
	Verb  Verb
	Delay time.Duration // of Delay
	Code  int32         // of Error
}

// A Verb is a kind of Action. What each does is said in package zktest, where tests find them.
type Verb int

const (
	Pass Verb = iota
	Drop
	Cut
	Delay
	Error
)

func (a Action) String() string {
	switch a.Verb {
	case Pass:
		return "pass"
	case Drop:
		return "drop"
	case Cut:
		return "cut"
	case Delay:
		return fmt.Sprintf("delay by %v", a.Delay)
	case Error:
		return fmt.Sprintf("error %d", a.Code)
	}
	return fmt.Sprintf("verb %d", int(a.Verb))
}

// Fits reports whether a can happen to such a frame: only requests are answered with errors, and a handshake only with
// the one that its session has expired.
func (a Action) Fits(request, handshake bool) bool {
	return a.Verb != Error || request && (!handshake || a.Code == wire.CodeSessionExpired)
}

// Await waits out a delay and returns what is left to do. That is to cut, which is then already so, if ended is closed
// before.
func (a Action) Await(ended <-chan struct{}) Action {
	if a.Verb != Delay {
		return a
	}
	timer := time.NewTimer(a.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return Action{}
	case <-ended:
		return Action{Verb: Cut}
	}
}

// About returns the path that a request is about, "" if it has none; for a multi or a multiRead that of its first operation, whose
// type first names, and for setWatches the first that it names. d is behind the header.
func About(op int32, d wire.Decoder) (path, first string) {
	switch op {
	case wire.OpMulti, wire.OpMultiRead:
		first = wire.OpName(d.MultiHeader().Op)
	case wire.OpSetWatches:
		q := d.SetWatches()
		if all := slices.Concat(q.Data, q.Exist, q.Children); len(all) > 0 {
			path = all[0]
		}
		return path, ""
	case wire.OpPing, wire.OpClose, wire.OpSetAuth:
		return "", ""
	}
	return d.String(), first
}
