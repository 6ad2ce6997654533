package agentstore

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// A stream is the request of one contender. It waits, and then streams events for as long as the contender holds.
type stream struct {
	store  *store
	ref    queue.Ref
	hangUp context.CancelFunc // closes the connection: the agent then ends the wait or the hold

	decided chan struct{} // closed when the agent has granted or refused
	refusal queue.Answer  // valid once decided is closed; its Outcome is Done if the agent has granted

	mu   sync.Mutex // guards the fields below
	id   string     // of the hold; "" while the contender waits
	view queue.View
}

// An event is a line of the stream.
type event struct {
	Event, ID, Token, Cause, Error string
	Serial                         int64
}

// promptly is how long an Enter waits for the grant before it reports that the contender waits.
const promptly = 2 * time.Millisecond

// enter begins a stream, unless an earlier try of the command has begun it.
func (s *store) enter(c queue.Command) queue.Answer {
	s.mu.Lock()
	one := s.at[c.ID]
	if one == nil {
		one = s.beginLocked(c, nil)
	}
	s.mu.Unlock()
	timer := time.NewTimer(promptly)
	defer timer.Stop()
	select {
	case <-one.decided:
		if one.refusal.Outcome != queue.Done {
			return one.refusal
		}
	case <-timer.C:
	}
	return queue.Answer{Outcome: queue.Done, View: one.state()}
}

// try begins a stream whose request does not wait, and waits for the answer.
func (s *store) try(ctx context.Context, c queue.Command) queue.Answer {
	s.mu.Lock()
	one := s.beginLocked(c, url.Values{"wait": {"0"}})
	s.mu.Unlock()
	select {
	case <-one.decided:
	case <-ctx.Done():
		one.hangUp()
		<-one.decided
	}
	if one.refusal.Outcome != queue.Done {
		return one.refusal
	}
	return queue.Answer{Outcome: queue.Done, View: one.state()}
}

func (s *store) beginLocked(c queue.Command, query url.Values) *stream {
	if query == nil {
		query = url.Values{}
	}
	query.Set("path", c.Path)
	query.Set("listen", "contended,revoke")
	if s.label != "" {
		query.Set("label", s.label)
	}
	switch {
	case c.Permits > 0:
		query.Set("permits", strconv.Itoa(c.Weight))
		query.Set("of", strconv.Itoa(c.Permits))
		query.Set("listen", "contended")
	case c.Reads:
		query.Set("mode", "read")
	case c.Writes:
		query.Set("mode", "write")
	}
	ctx, cancel := context.WithCancel(context.Background()) // the stream lasts as long as the hold, and leave or Close ends it
	one := &stream{store: s, ref: c.Ref, hangUp: cancel, decided: make(chan struct{})}
	one.view = queue.View{ID: c.ID, Known: true, At: s.clock.Add(1), Reads: c.Reads, Of: c.Permits, Ahead: 1}
	s.at[c.ID] = one
	s.all.Go(func() {
		defer cancel()
		one.run(ctx, query)
	})
	return one
}

func (s *store) find(id string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[id]
}

func (s *store) forget(one *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at[one.ref.ID] == one {
		delete(s.at, one.ref.ID)
	}
}

// run sends the request, and reads the stream to its end.
func (one *stream) run(ctx context.Context, query url.Values) {
	s := one.store
	response, err := s.request(ctx, http.MethodPost, "hold", query, nil)
	if err != nil {
		one.refuse(s.unreached(ctx, err))
		return
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		one.refuse(refused(response))
		return
	}
	lines := json.NewDecoder(response.Body)
	for {
		var e event
		if err := lines.Decode(&e); err != nil {
			one.end(s.unreached(ctx, err), second.Lost(second.BySession, "the connection to the agent has ended"))
			return
		}
		switch e.Event {
		case "acquired":
			if a := one.granted(ctx, e); a.Outcome != queue.Done {
				one.refuse(a)
				return
			}
		case "contended":
			one.tell(one.change(func(v *queue.View) { v.Behind = true }))
		case "revoke":
			one.tell(one.change(func(v *queue.View) { v.Asked = true }))
		case "lost":
			one.end(queue.Answer{}, second.Lost(second.LossCause(e.Cause), "%s", second.Text(e.Error)))
			return
		case "released":
			// The end of the stream follows. Reading it lets the next request use the connection.
			defer time.AfterFunc(time.Second, one.hangUp).Stop()
			_, _ = io.Copy(io.Discard, response.Body)
			return
		}
	}
}

// granted makes the contender a holder. The lease of this process counts from its newest answered renewal. If that arrived after the hold
// had begun, and did not name it, the agent may end the hold before the lease. The hold is then renewed first.
func (one *stream) granted(ctx context.Context, e event) (a queue.Answer) {
	a.Outcome = queue.Done
	one.name(e.ID) // before the serial is read, since a renewal sets the serial and then looks for ids
	if e.Serial < one.store.serial.Load() {
		var renewed renewal
		renewed, a = one.store.renew(ctx, []string{e.ID})
		if a.Outcome == queue.Done && len(renewed.Ended) > 0 {
			a = queue.Answer{Outcome: queue.Failed, Err: errors.New("the agent has ended the hold")}
		}
		if a.Outcome != queue.Done {
			one.name("")
			return a
		}
	}
	v := one.change(func(v *queue.View) {
		v.Token, _ = strconv.ParseInt(e.Token, 10, 64) // an agent sends a number
		v.Has, v.Ahead = true, 0
		v.Reader = true // Share need not wait until the next contender is a reader, because the agent lets readers of all hosts in
	})
	one.refusal.Outcome = queue.Done
	close(one.decided)
	one.tell(v)
	return a
}

// name records the id of the hold.
func (one *stream) name(id string) {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.id = id
}

// refuse records why the contender does not wait any more. If an Enter has reported before that the contender waits, a notification tells.
func (one *stream) refuse(a queue.Answer) {
	s := one.store
	s.forget(one) // another try of the command begins another stream
	one.refusal = a
	close(one.decided)
	v := s.gone(one.ref, nil)
	if a.Outcome == queue.Denied {
		v.Known, v.Err = true, a.Err // it is no use to enter again
	}
	one.tell(v)
}

// end is called when the stream has ended without a release.
func (one *stream) end(a queue.Answer, loss error) {
	if one.hold() == "" {
		one.refuse(a)
		return
	}
	one.store.forget(one)
	one.tell(one.store.gone(one.ref, loss))
}

// tell reports a view, unless the command that began the stream is about to return it.
func (one *stream) tell(v queue.View) { one.store.tier.Tell(v) }

func (one *stream) change(f func(*queue.View)) queue.View {
	one.mu.Lock()
	defer one.mu.Unlock()
	f(&one.view)
	one.view.At = one.store.clock.Add(1)
	return one.view
}

func (one *stream) state() queue.View {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.view
}

// hold returns the id of the hold, and "" while the contender waits.
func (one *stream) hold() string {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.id
}

// leave releases a hold, or ends a wait. If the answer to the release is lost, the end of the connection ends the hold: the next try finds
// out whether it has.
func (s *store) leave(ctx context.Context, r queue.Ref, unsettled bool) queue.Answer {
	one := s.find(r.ID)
	if one == nil {
		return queue.Answer{Outcome: queue.Done, Removed: queue.Missing}
	}
	id := one.hold()
	if id == "" {
		one.hangUp()
		select {
		case <-one.decided:
		case <-ctx.Done():
			return s.unreached(ctx, context.Cause(ctx))
		}
		return queue.Answer{Outcome: queue.Done}
	}
	query := url.Values{"id": {id}}
	if unsettled {
		query.Set("unsettled", "1")
	}
	a := s.send(ctx, http.MethodPost, "release", query, nil, nil)
	switch a.Outcome {
	case queue.Done:
		s.forget(one)
	case queue.Gone, queue.Denied: // it has ended before
		one.hangUp()
		s.forget(one)
		a = queue.Answer{Outcome: queue.Done, Removed: queue.Missing}
	default:
		one.hangUp()
	}
	return a
}
