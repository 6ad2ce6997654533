package trace

import (
	"context"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// runNodes returns the trace of three processes that use a mutex, a reader/writer lock and permits on ZooKeeper. With faults, one of them
// is cut off for longer than its session lasts, and another one loses its connection from time to time.
func runNodes(t *testing.T, long time.Duration, faults bool) (events []Event) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex // guards events
		add := func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			e.At = clock.Instant(time.Since(begin) + time.Hour)
			events = append(events, e)
		}
		server := zktest.Start(t, zktest.Config{Latency: time.Millisecond})
		ctx := need.Within(t, long)
		var work sync.WaitGroup
		for i := range 3 {
			process := fmt.Sprint(i + 1)
			record := func(e Event) {
				e.Process = process
				add(e)
			}
			var lines, requests atomic.Int64
			client := need.Get(zknode.Dial(ctx, "zk:2181", zknode.WithSessionTimeout(ttl),
				zknode.WithDialContext(func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := server.DialContext(ctx, network, address)
					if err != nil {
						return nil, err
					}
					return recorded(conn, lines.Add(1), &requests, record), nil
				})))(t)
			locks := tier.New(zknode.Tier(client), tier.WithHandOff(15*time.Millisecond))
			defer locks.Close()
			use(ctx, &work, locks, record)
			useTogether(ctx, &work, locks, record)
		}
		if faults {
			work.Go(func() {
				for sessions := server.Sessions(); ctx.Err() == nil; {
					time.Sleep(2 * time.Second)
					server.Cut(sessions[1].ID)
					server.Mute(sessions[0].ID, zktest.Request)
					time.Sleep(2 * ttl)
					server.Unmute(sessions[0].ID, zktest.Request)
				}
			})
		}
		work.Wait()
	})
	requests := map[command]*Request{}
	for i, e := range events {
		if key := (command{e.Process, e.Number}); e.Kind == Sent {
			requests[key] = e.Request
		} else if e.Kind == Answered {
			events[i].Request = requests[key] // the forgers need the request that is answered
		}
	}
	return events
}

// useTogether makes a process acquire several locks at the same time, over and over, so that the process sends its requests in groups.
func useTogether(ctx context.Context, work *sync.WaitGroup, locks *tier.Registry, record func(Event)) {
	for i := range 4 {
		lock := locks.Mutex(fmt.Sprintf("/together/%d", i))
		work.Go(func() {
			for ctx.Err() == nil {
				if h, err := lock.Acquire(ctx); err == nil {
					record(Event{Kind: Got, Hold: &Hold{lock.Path(), h.Token()}})
					h.Release()
				}
				time.Sleep(200 * time.Millisecond)
			}
		})
	}
}

// A round of faults takes two session timeouts and two seconds.
func TestWhatZooKeeperDidIsPossible(t *testing.T) {
	for faults, long := range map[bool]time.Duration{false: 5 * time.Second, true: 3 * ttl} {
		events := runNodes(t, long, faults)
		groups := 0
		for _, e := range events {
			if e.Kind == Sent && e.Request.Op == "multiRead" {
				groups++
			}
		}
		if _, err := Check(events, Rules{Nodes: true}); err != nil || len(events) < 1000 || groups < 10 {
			t.Errorf("faults %v: %v, %d events, %d groups", faults, err, len(events), groups)
		}
	}
}

// The function replies returns a forger of replies to requests with the operation op. f changes one reply and reports whether it has
// changed it.
func replies(op string, f func(q *Request, r *Reply) bool) func([]Event, int) ([]Event, bool) {
	return func(events []Event, at int) ([]Event, bool) {
		e := &events[at]
		if !e.answers(op) {
			return nil, false
		}
		r := *e.Reply
		r.Names, r.Paths, r.Parts = slices.Clone(r.Names), slices.Clone(r.Paths), slices.Clone(r.Parts)
		e.Reply = &r
		return events, f(e.Request, &r)
	}
}

// The method answers reports whether the event is the answer to an executed operation.
func (e Event) answers(op string) bool {
	return e.Kind == Answered && e.Request.Op == op && e.Reply.Code == wire.CodeOK
}

func lock(name string) bool {
	_, _, ok := zkqueue.ParseName(name)
	return ok
}

var nodeForgers = []forger{
	{"a node that vanishes from a list", replies("getChildren2", func(_ *Request, r *Reply) bool {
		i := slices.IndexFunc(r.Names, lock)
		if len(r.Names) < 2 || i < 0 {
			return false
		}
		r.Names = slices.Delete(r.Names, i, i+1)
		return true
	}), "not there at .*, and (no step can have removed it|was at|was deleted at)|is there at .*, and was gone"},
	{"a node that nobody has created", replies("getChildren2", func(_ *Request, r *Reply) bool {
		r.Names = append(r.Names, zkqueue.NewID()+"lock-0000000000")
		return true
	}), "nobody has created it"},
	{"a node that nobody has created in the last one of several lists", replies("multiRead", func(q *Request, r *Reply) bool {
		last := len(r.Parts) - 1
		for last >= 0 && (q.Ops[last].Op != wire.OpName(wire.OpGetChildren) || r.Parts[last].Code != wire.CodeOK) {
			last--
		}
		if last < 0 {
			return false
		}
		r.Parts[last].Names = append(slices.Clone(r.Parts[last].Names), zkqueue.NewID()+"lock-0000000000")
		return true
	}), "nobody has created it"},
	{"a node that is listed after its end", func(events []Event, at int) ([]Event, bool) {
		for _, gone := range events[:at] {
			e := &events[at]
			if gone.answers("delete") && e.answers("getChildren2") && e.Request.Path == path.Dir(gone.Request.Path) &&
				e.Reply.Zxid >= gone.Reply.Zxid {
				r := *e.Reply
				r.Names = append(slices.Clone(r.Names), path.Base(gone.Request.Path))
				e.Reply = &r
				return events, true
			}
		}
		return nil, false
	}, "was gone at"},
	{"a transaction twice", func(events []Event, at int) ([]Event, bool) {
		for i := at + 1; i < len(events) && events[at].answers("delete"); i++ {
			if f := &events[i]; f.answers("delete") && f.Line == events[at].Line && f.Process == events[at].Process {
				r := *f.Reply
				r.Zxid, f.Reply = events[at].Reply.Zxid, &r
				return events, true
			}
		}
		return nil, false
	}, "two transactions|knew .* before|had been answered|was deleted at|and was at"},
	{"a server that goes back", replies("sync", func(_ *Request, r *Reply) bool {
		r.Zxid /= 2
		return r.Zxid > 10
	}), "knew .* before"},
	{"a number twice", replies("create", func(q *Request, r *Reply) bool {
		if len(r.Paths) == 0 || !q.Sequence {
			return false
		}
		number := r.Paths[0][len(q.Path):]
		r.Paths[0] = q.Path + "0000000000"
		return number > "0000000000"
	}), "not in the order of transactions|nobody has created|is not there|is there at"},
	{"a number beyond what was asked for", replies("create", func(q *Request, r *Reply) bool {
		if len(r.Paths) == 0 || !q.Sequence {
			return false
		}
		r.Paths[0] = q.Path + "0000900000"
		return true
	}), "were asked for|nobody has created|nobody can have removed"},
	// Only replies to reads are exchanged, because the outcomes of writes are already used to judge earlier events.
	{"answers exchanged", func(events []Event, at int) ([]Event, bool) {
		reads := func(a *Event) bool {
			return a.Kind == Answered && slices.ContainsFunc(events, func(q Event) bool {
				return q.Kind == Sent && q.Process == a.Process && q.Number == a.Number && !q.Request.writes()
			})
		}
		e := &events[at]
		for i := at + 1; i < len(events) && reads(e); i++ {
			if f := &events[i]; f.Line == e.Line && f.Process == e.Process && reads(f) {
				e.Number, f.Number = f.Number, e.Number
				return events, true
			}
		}
		return nil, false
	}, "which was not sent, or not before"},
	{"an answer to nothing", func(events []Event, at int) ([]Event, bool) {
		e := events[at]
		e.Number = 1 << 40
		return slices.Insert(events, at, e), e.Kind == Answered
	}, "which was not sent"},
	{"another one's node", replies("getData", func(_ *Request, r *Reply) bool {
		r.Owner++
		return r.Czxid != 0 && r.Owner > 1
	}), "was created by"},
	{"another one's node, read with others", replies("multiRead", func(q *Request, r *Reply) bool {
		for i, o := range q.Ops {
			if _, _, ok := zkqueue.ParseName(path.Base(o.Path)); ok && r.Parts[i].Code == wire.CodeOK && o.Op == wire.OpName(wire.OpGetData) {
				r.Parts[i].Owner++
				return true
			}
		}
		return false
	}), "was created by"},
	{"a node that was not found, read with others", replies("multiRead", func(q *Request, r *Reply) bool {
		for i, o := range q.Ops {
			if _, _, ok := zkqueue.ParseName(path.Base(o.Path)); ok && r.Parts[i].Code == wire.CodeOK && o.Op == wire.OpName(wire.OpGetData) {
				r.Parts[i] = Reply{Code: wire.CodeNoNode}
				return true
			}
		}
		return false
	}), "not there at .*, and (no step can have removed it|was at|was deleted at)"},
	{"the end of a node that is there", func(events []Event, at int) ([]Event, bool) {
		e := events[at]
		gone := Event{At: e.At, Process: e.Process, Line: e.Line, Kind: Gone, Reply: e.Reply}
		return slices.Insert(events, at+1, gone), e.answers("create") && e.Request.Sequence
	}, "no step can have removed it"},
	{"the end of a node that is not told", func(events []Event, at int) ([]Event, bool) {
		e := events[at]
		later := slices.ContainsFunc(events[at+1:], func(f Event) bool {
			return f.Kind == Answered && f.Process == e.Process && f.Line == e.Line && f.Reply.Zxid > 0
		})
		return slices.Delete(events, at, at+1), e.Kind == Gone && later
	}, "before the end of"},
	{"the end of a node that was watched with others and is not told", func(events []Event, at int) ([]Event, bool) {
		e := events[at]
		alone, together := false, false
		for _, f := range events[:at] {
			if e.Kind == Gone && f.Kind == Sent && f.Process == e.Process && f.Line == e.Line {
				alone = alone || f.Request.Watch && f.Request.Path == e.Reply.Paths[0]
				together = together || slices.Contains(f.Request.Watches, e.Reply.Paths[0])
			}
		}
		return slices.Delete(events, at, at+1), together && !alone
	}, "before the end of"},
	{"the end of a node that was gone when it was watched with others", func(events []Event, at int) ([]Event, bool) {
		e := events[at]
		for i := at + 1; i < len(events) && e.answers("delete"); i++ {
			if f := &events[i]; f.Kind == Sent && f.Process == e.Process && f.Line == e.Line && len(f.Request.Watches) > 0 {
				q := *f.Request
				q.Watches, f.Request = append(slices.Clone(q.Watches), e.Request.Path), &q
				return events, true
			}
		}
		return nil, false
	}, "before the end of"},
	{"a session that ends too early", func(events []Event, at int) ([]Event, bool) {
		e := events[at]
		if !e.answers("create") {
			return nil, false
		}
		connect := Event{At: e.At, Process: e.Process, Line: 1 << 20, Number: 1 << 40, Kind: Sent,
			Request: &Request{Op: "connect", Session: e.Request.Session}}
		over := connect
		over.Kind, over.Reply = Answered, &Reply{}
		return slices.Insert(events, at+1, connect, over), true
	}, "before it can be"},
	{"a transaction after its session", func(events []Event, _ int) ([]Event, bool) {
		at := events[len(events)-1].At
		later := func(process string, q Request, r Reply) {
			at = at.Add(2 * ttl)
			events = exchange(events, process, at, q, r)
		}
		later("late", Request{Op: "connect"}, Reply{Session: 77, Timeout: ttl})
		later("late", Request{Op: "create", Session: 77, Path: "/late/1"}, Reply{Zxid: 1 << 40, Paths: []string{"/late/1"}})
		later("1", Request{Op: "getChildren2", Path: "/late"}, Reply{Zxid: 2 << 40})
		later("late", Request{Op: "create", Session: 77, Path: "/late/2"}, Reply{Zxid: 3 << 40, Paths: []string{"/late/2"}})
		return events, true
	}, "which was over"},
	{"a write before what had been answered", replies("delete", func(_ *Request, r *Reply) bool {
		r.Zxid = 1
		return true
	}), "had been answered|knew .* before"},
	{"more permits than there are", func(events []Event, at int) ([]Event, bool) {
		forged := false
		for i, e := range events {
			if e.Kind == Sent && e.Request.Op == "setData" && strings.HasPrefix(e.Request.Data, zkqueue.PermitsMark) {
				q := *e.Request
				q.Data = zkqueue.PermitsMark + "1"
				events[i].Request, forged = &q, true
			}
		}
		return events, forged
	}, "has taken permits: "},
	{"a grant too early", func(events []Event, at int) ([]Event, bool) {
		for i := at; i > 0 && events[at].Kind == Got && events[at].Hold.Path == "/mutex"; i-- {
			e := events[i]
			if e.Kind == Answered && len(e.Reply.Paths) > 0 && path.Dir(e.Reply.Paths[0]) == "/mutex" && e.Reply.Zxid > events[at].Hold.Token {
				early := Event{At: events[at].At, Process: e.Process, Kind: Got, Hold: &Hold{"/mutex", e.Reply.Zxid}}
				return slices.Insert(events, at+1, early), true
			}
		}
		return nil, false
	}, "is before it"},
	{"a hold without a node", func(events []Event, at int) ([]Event, bool) {
		e := events[at]
		e.Hold = &Hold{"/mutex", 1 << 40}
		return slices.Insert(events, at, e), e.Kind == Got
	}, "has no node"},
	{"a loss that is told late", func(events []Event, at int) ([]Event, bool) {
		events[at].At = events[len(events)-1].At.Add(2 * ttl)
		return events, events[at].Kind == Valid
	}, "after the end of its session|after its node was missed"},
}

// exchange adds a request that is sent at a given time, and its answer a millisecond later.
func exchange(events []Event, process string, at clock.Instant, q Request, r Reply) []Event {
	n := 1<<40 + int64(len(events))
	return append(events,
		Event{At: at, Process: process, Number: n, Kind: Sent, Request: &q},
		Event{At: at.Add(time.Millisecond), Process: process, Number: n, Kind: Answered, Reply: &r})
}

func TestWhatZooKeeperCannotHaveDoneIsFound(t *testing.T) {
	events := runNodes(t, 2*time.Second, false)
	for _, f := range nodeForgers {
		f.isRefused(t, events, Rules{Nodes: true})
	}
}

// If a connection has removed a watch, it gets no event when that node is deleted. Later answers may show the deletion all the same.
func TestWatchThatWasRemovedIsNotTold(t *testing.T) {
	const watched, other, reader = "/q/1", "/q/2", "reader"
	for _, removed := range []string{watched, other, ""} {
		var events []Event
		then := func(process string, q Request, r Reply) {
			events = exchange(events, process, clock.Instant(len(events))*clock.Instant(time.Millisecond), q, r)
		}
		then("owner", Request{Op: "connect"}, Reply{Session: 7, Timeout: ttl})
		for i, at := range []string{watched, other} {
			zxid := int64(i + 1)
			then("owner", Request{Op: "create", Session: 7, Path: at}, Reply{Zxid: zxid, Paths: []string{at}})
			then(reader, Request{Op: "getData", Path: at, Watch: true}, Reply{Zxid: zxid, Czxid: zxid, Owner: 7})
		}
		if removed != "" {
			then(reader, Request{Op: "removeWatches", Path: removed}, Reply{Zxid: 2})
		}
		then("owner", Request{Op: "delete", Session: 7, Path: watched}, Reply{Zxid: 3})
		then(reader, Request{Op: "sync", Path: "/"}, Reply{Zxid: 3})
		_, err := Check(events, Rules{Nodes: true})
		if removed == watched {
			need.WantErr(t, "the watch was removed", err, nil)
		} else {
			need.WantMention(t, err, "before the end of "+watched)
		}
	}
}
