package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// A wish is what a client wants to hold.
type wish struct {
	paths   []string
	mode    string // "", "read" or "write"
	permits int    // 0 for a lock
	of      int
	wait    time.Duration
	limited bool // wait is given
	listen  []string
	label   string
}

const maxLabel = 256

func parseWish(r *request) (w wish, err error) {
	w.paths, w.mode = r.list("path", maxPaths), r.text("mode")
	w.permits, w.of = int(r.number("permits", 32)), int(r.number("of", 32))
	w.wait, w.limited = r.limit("wait")
	w.listen, w.label = r.words("listen", "contended", "revoke"), second.Text(r.text("label"))
	switch {
	case len(w.paths) == 0:
		r.wrong("the parameter path is missing")
	case len(slices.Compact(slices.Sorted(slices.Values(w.paths)))) < len(w.paths):
		r.wrong("a path is given twice")
	case w.mode != "" && w.mode != "read" && w.mode != "write":
		r.wrong("mode is %q; want read or write, or none for a mutex", w.mode)
	case (w.permits == 0) != (w.of == 0):
		r.wrong("permits and of belong together: permits=2&of=5 takes 2 of 5 permits")
	case w.permits > 0 && (w.mode != "" || len(w.paths) > 1 || slices.Contains(w.listen, "revoke")):
		r.wrong("permits are of one path, without a mode, and cannot be revoked")
	case len(w.paths) > 1 && w.tries():
		r.wrong("wait=0 is for one path")
	case len(w.label) > maxLabel:
		r.wrong("the label is longer than %d bytes", maxLabel)
	}
	return w, r.check()
}

func (w *wish) reads() bool { return w.mode == "read" }
func (w *wish) tries() bool { return w.limited && w.wait == 0 }

func (w *wish) places() (places []place) {
	for _, path := range w.paths {
		places = append(places, place{path, w.permits > 0})
	}
	return places
}

// mutex returns the lock at path, on the side that the client wants.
func (w *wish) mutex(locks *tier.Registry, path string) *tier.Mutex {
	switch w.mode {
	case "read":
		return locks.RWMutex(path).Reader()
	case "write":
		return locks.RWMutex(path).Writer()
	}
	return locks.Mutex(path)
}

// A tenure is what the registry has granted for a wish.
type tenure interface {
	Err() error
	Context(ctx context.Context) context.Context
	Release() error
}

// acquire waits for what the client wants.
func (w *wish) acquire(ctx context.Context, locks *tier.Registry) (tenure, error) {
	if w.limited && w.wait > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, w.wait, tier.ErrWaitLimit)
		defer cancel()
		ctx = limited
	}
	switch {
	case w.permits > 0 && w.tries():
		return granted(locks.Semaphore(w.paths[0], w.of).TryAcquire(ctx, w.permits))
	case w.permits > 0:
		return granted(locks.Semaphore(w.paths[0], w.of).Acquire(ctx, w.permits))
	case w.tries():
		return granted(w.mutex(locks, w.paths[0]).TryAcquire(ctx))
	case len(w.paths) == 1:
		return granted(w.mutex(locks, w.paths[0]).Acquire(ctx))
	}
	var all []*tier.Mutex
	for _, path := range w.paths {
		all = append(all, w.mutex(locks, path))
	}
	return granted(tier.AcquireAll(ctx, all...))
}

// granted returns nil with an error. Without it, a nil *tier.Hold would become a tenure that is not nil.
func granted[T tenure](t T, err error) (tenure, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}

// A hold is what one client holds. It ends once: by a release, by the end of the connection or of the process, because it was not renewed,
// or because the lock is lost.
type hold struct {
	agent *Agent
	id    string
	wish  wish
	peer  *peer
	seats map[place]*seat

	changing sync.Mutex // locked during a change of the tenure by the registry, which may wait for the store; guards the field below
	ended    bool       // the tenure is being released

	mu       sync.Mutex    // guards the fields below; never locked during a call of the registry
	until    time.Duration // when the hold ends without a renewal, on the agent's clock
	serial   int64         // of the newest renewal that arrived before the hold began
	unread   bool          // the client does not read its stream
	tenure   tenure
	notified map[string]bool // the events that were sent, or will not be sent
	heeds    map[string]bool // the events for which the client listens

	writing sync.Mutex // makes writes of the value take effect in the order of their arrival; guards the fields below
	turn    int64      // of the last write of the value that took effect, or may yet
	doubt   error      // the error of that write if its outcome is unknown

	events chan string
	over   chan struct{} // closed when the hold has ended
	ending atomic.Bool
	err    error // the result of the release; valid when over is closed
}

// An event is a line of the stream of a hold.
type event struct {
	Event  string            `json:"event"`
	ID     string            `json:"id,omitempty"`
	Token  string            `json:"token,omitempty"`
	Tokens map[string]string `json:"tokens,omitempty"`
	Valid  int64             `json:"valid_ms,omitempty"`
	Renew  int64             `json:"renew_ms,omitempty"`
	Serial int64             `json:"serial,omitempty"`
	Cause  string            `json:"cause,omitempty"`
	Error  string            `json:"error,omitempty"`
}

// hold acquires what the client wants, and streams events for as long as the client holds it.
func (a *Agent) hold(w http.ResponseWriter, r *request) error {
	want, err := parseWish(r)
	if err == nil {
		_, err = r.body(0)
	}
	if err == nil {
		err = a.permit(r.peer, want.paths...)
	}
	if err != nil {
		return err
	}
	if a.closing.Load() {
		return tier.ErrClosed
	}
	ctx, done := r.peer.attend(r.Context())
	defer done()
	seats := a.sit(&want, r.peer)
	a.waiting.Add(1)
	got, err := want.acquire(ctx, a.locks)
	a.waiting.Add(-1)
	if err != nil {
		a.rise(seats)
		return a.explain(err, want.permits > 0, r.peer)
	}
	h := a.begin(&want, r.peer, seats, got)
	defer func() { h.end(h.reason(ctx)) }() // whatever happens here, the lock is not kept
	if err := h.settleIn(ctx); err != nil {
		return err
	}
	if !h.stream(ctx, w) {
		h.outlast(ctx)
	}
	return nil
}

// reason returns why the hold ends that its client does not release. ctx is from [peer.attend].
func (h *hold) reason(ctx context.Context) reason {
	select {
	case <-h.over:
		return released // it has ended already, and its reason is recorded
	default:
	}
	switch {
	case h.agent.evicted.Err() != nil || errors.Is(h.held().Err(), tier.ErrLost):
		return gone
	case h.expired(): // the client may close its connection because of that
		return notRenewed
	case errors.Is(context.Cause(ctx), errDied) || h.peer.exits():
		return died
	}
	return hungUp
}

// outlast waits until the client cannot count on the hold any more. The client does not read its stream, so it would not learn of an
// earlier end. It cannot renew the hold from now on.
func (h *hold) outlast(ctx context.Context) {
	h.mu.Lock()
	h.unread = true
	h.mu.Unlock()
	for !h.expired() {
		timer := time.NewTimer(h.expires() - h.agent.clock.Now())
		select {
		case <-timer.C:
			continue
		case <-ctx.Done():
		case <-h.over:
		}
		timer.Stop()
		return
	}
}

// settleIn waits until the lease in the store lasts for long enough. It does so already, unless the store was not reached for a while.
// After the eviction no hold begins, because the agent keeps the locks for one lease after it.
func (h *hold) settleIn(ctx context.Context) error {
	for {
		h.start()
		if h.agent.evicted.Err() != nil { // read after the start: a hold that began before ends in time
			return tier.ErrClosed
		}
		if h.valid() {
			return nil
		}
		if err := cmp.Or(h.held().Err(), retry.Pause(ctx, 10*time.Millisecond)); err != nil {
			return err
		}
	}
}

// start makes the time of the hold begin. The client may count on the renewals that arrived before. It does not know the hold yet. It may
// not count on a later renewal that does not name the hold.
func (h *hold) start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serial = h.agent.renewals.Load() // read before the clock
	h.agent.clock.Ask()
	h.until = h.agent.clock.Now() + h.agent.config.Lease
}

// sit records that a client waits, and tells the holders that listen.
func (a *Agent) sit(want *wish, p *peer) map[place]*seat {
	seats := make(map[place]*seat)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range want.places() {
		if a.places[at] == nil {
			a.places[at] = make(map[*seat]bool)
		}
		for one := range a.places[at] {
			if one.hold != nil && !want.tries() && !(one.reads && want.reads()) {
				one.hold.notify("contended")
			}
		}
		seats[at] = &seat{peer: p, label: want.label, reads: want.reads(), since: time.Now()}
		a.places[at][seats[at]] = true
	}
	return seats
}

func (a *Agent) rise(seats map[place]*seat) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at, one := range seats {
		if delete(a.places[at], one); len(a.places[at]) == 0 {
			delete(a.places, at)
		}
	}
}

// explain names to asker the client of this host that holds the lock, if a wait has ended because of it. The registry sees only goroutines.
func (a *Agent) explain(err error, permits bool, asker *peer) error {
	wait := (*tier.WaitError)(nil)
	if !errors.As(err, &wait) || wait.Here == nil {
		return err
	}
	for _, one := range a.clients(place{wait.Path, permits}) {
		if one.Holds {
			f := describe(err)
			return &failure{f.status, f.code, fmt.Errorf("waited %v for %s: held on this host by process %d (%s) since %s",
				wait.Waited.Round(time.Millisecond), wait.Path, one.PID, cmp.Or(one.peer.command(asker), "unknown"), one.Since.Format(time.RFC3339))}
		}
	}
	return err
}

// begin makes the client a holder.
func (a *Agent) begin(want *wish, p *peer, seats map[place]*seat, got tenure) *hold {
	h := &hold{
		agent: a, id: rand.Text(), wish: *want, peer: p, seats: seats, tenure: got,
		notified: make(map[string]bool), heeds: make(map[string]bool), events: make(chan string, 2), over: make(chan struct{}),
	}
	h.start()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holds[h.id] = h
	for _, one := range seats {
		one.hold, one.since = h, time.Now()
	}
	return h
}

// renew extends the hold, unless it has expired. received is when the request arrived. A request that was overtaken by a later one changes
// nothing.
func (h *hold) renew(received time.Duration) (renewed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unread || h.agent.clock.Now() >= h.until {
		return false
	}
	h.until = max(h.until, received+h.agent.config.Lease)
	return true
}

// expires returns when the hold ends without a renewal.
func (h *hold) expires() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until
}

// expired reports whether the hold was not renewed in time. It can then not be renewed any more.
func (h *hold) expired() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.agent.clock.Now() >= h.until
}

// valid reports whether the client may count on the hold for the time of [Agent.validity]. It may not if the lease of the agent's own
// session could end earlier, or soon after. The margin in between is the time for the client to stop.
func (h *hold) valid() bool {
	for _, end := range h.ends() {
		if time.Until(end) < h.agent.config.Lease {
			return false
		}
	}
	return true
}

// ends returns when the leases of the locks end. A lock that is lost has the zero time.
func (h *hold) ends() (ends []time.Time) {
	held := h.held()
	if permits, ok := held.(*tier.Permits); ok {
		return []time.Time{permits.ValidUntil()}
	}
	for _, one := range holdsOf(held) {
		ends = append(ends, one.ValidUntil())
	}
	return ends
}

func (h *hold) held() tenure {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tenure
}

// holdsOf returns the holds of a tenure that is no tenure of permits.
func holdsOf(t tenure) []*tier.Hold {
	switch t := t.(type) {
	case *tier.Hold:
		return []*tier.Hold{t}
	case *tier.Bundle:
		return t.Holds()
	}
	return nil
}

func (h *hold) tokens() (e event) {
	text := func(token int64) string { return strconv.FormatInt(token, 10) }
	switch t := h.held().(type) {
	case *tier.Permits:
		e.Token = text(t.Token())
	case *tier.Hold:
		e.Token = text(t.Token())
	case *tier.Bundle:
		e.Tokens = make(map[string]string)
		for _, one := range t.Holds() {
			e.Tokens[one.Path()] = text(one.Token())
		}
	}
	return e
}

// notify sends an event to the client if it listens for that event. Each event is sent once.
func (h *hold) notify(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.heeds[name] && !h.notified[name] {
		h.notified[name] = true
		h.events <- name // does not block: the channel has room for each event
	}
}

// heed makes the client listen for events from now on.
func (h *hold) heed(names []string) {
	h.mu.Lock()
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return h.heeds[name] })
	for _, name := range names {
		h.heeds[name] = true
	}
	h.mu.Unlock()
	if len(names) == 0 {
		return
	}
	for _, grant := range grantsOf(h.held()) {
		var contended, revoked <-chan struct{}
		if slices.Contains(names, "contended") {
			contended = grant.Contended().C()
		}
		if slices.Contains(names, "revoke") {
			revoked = grant.RevokeRequested()
		}
		go h.pass(contended, revoked)
	}
	if slices.Contains(names, "contended") && h.agent.waits(h) {
		h.notify("contended")
	}
}

// pass sends the events of one lock to the client. Each channel is closed when other hosts want the lock; nil is for an event for which the
// client does not listen.
func (h *hold) pass(contended, revoked <-chan struct{}) {
	for contended != nil || revoked != nil {
		select {
		case <-contended:
			contended = nil
			h.notify("contended")
		case <-revoked:
			revoked = nil
			h.yield()
			h.notify("revoke")
		case <-h.over:
			return
		}
	}
}

// grantsOf returns the grants of the locks of t. Permits have none. Hold.Contended and Hold.RevokeRequested would also end the local
// hand-off, but the hand-off budget is for all clients of the host together.
func grantsOf(t tenure) []second.Grant {
	guard, ok := t.(tier.Guard)
	if !ok {
		return nil
	}
	of, _ := tier.GuardOf(guard) // after an error, the client has released meanwhile
	return of.Grants
}

// yield makes the next release give the lock to the host that has asked for it, since the client may release for that host.
func (h *hold) yield() {
	for _, one := range holdsOf(h.held()) {
		one.RevokeRequested()
	}
}

// waits reports whether another client of the host waits because of h.
func (a *Agent) waits(h *hold) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at, own := range h.seats {
		for one := range a.places[at] {
			if one.hold == nil && !(one.reads && own.reads) {
				return true
			}
		}
	}
	return false
}

// stream sends the events of the hold until it ends. It returns false if the client does not read them.
func (h *hold) stream(ctx context.Context, w http.ResponseWriter) (read bool) {
	a, s := h.agent, newStream(w, h.agent.margin())
	lost := lossOf(h.held())
	h.heed(h.wish.listen)
	first := h.tokens()
	first.Serial = h.serial
	first.Event, first.ID, first.Valid, first.Renew = "acquired", h.id, a.validity().Milliseconds(), a.renewal()
	alive := a.clock.Now() + a.margin()
	evicted := a.evicted.Done()
	for ok := s.write(first); ok; {
		// After a sleep of the machine this timer fires late. The end of the hold can be late: its client counts on it for a shorter time.
		timer := time.NewTimer(min(alive, h.expires()) - a.clock.Now())
		select {
		case <-ctx.Done():
			ok = false
		case <-h.over:
			s.put(event{Event: "released"})
			ok = false
		case <-lost:
			if err := h.held().Err(); errors.Is(err, tier.ErrLost) {
				s.write(event{Event: "lost", Cause: string(second.CauseOf(err)), Error: err.Error()})
				ok = false
			}
			lost = nil // otherwise a bundle was released, and over follows
		case <-evicted:
			ok = s.write(event{Event: "lost", Cause: "close", Error: "the agent ends"})
			evicted = nil // the hold keeps the lock until the client has seen this, or cannot count on the hold any more
		case name := <-h.events:
			ok = s.write(event{Event: name})
		case <-timer.C:
			switch now := a.clock.Now(); {
			case h.expired():
				s.write(event{Event: "lost", Cause: "lease", Error: fmt.Sprintf("not renewed for %v", a.config.Lease)})
				ok = false
			case now >= alive:
				ok, alive = s.write(event{Event: "alive"}), now+a.margin()
			}
		}
		timer.Stop()
	}
	return !s.failed
}

// lossOf returns a channel that is closed when t is lost. For a bundle, a release closes the channel, too.
func lossOf(t tenure) <-chan struct{} {
	if t, ok := t.(interface{ Lost() <-chan struct{} }); ok {
		return t.Lost()
	}
	return t.Context(context.Background()).Done()
}

// renewal returns how often a client should renew, in milliseconds.
func (a *Agent) renewal() int64 { return max((a.validity() / 3).Milliseconds(), 1) }

// end ends the hold, once. Unless the client declares that all its writes were answered, the next owner gets a higher token. end returns
// the result of the release.
func (h *hold) end(why reason) error {
	if h.ending.Swap(true) {
		<-h.over
		return h.err
	}
	h.giveUp(why == released)
	if errors.Is(h.err, tier.ErrLost) {
		why = gone
	}
	h.agent.ended(h, why)
	return h.err
}

func (h *hold) giveUp(settled bool) {
	defer close(h.over)
	h.agent.mu.Lock()
	delete(h.agent.holds, h.id)
	h.agent.mu.Unlock()
	h.agent.rise(h.seats)
	h.changing.Lock()
	defer h.changing.Unlock()
	h.ended = true
	held := h.held()
	if doubtful, ok := held.(interface{ ReleaseUnsettled() error }); ok && !settled {
		h.err = doubtful.ReleaseUnsettled()
	} else {
		h.err = held.Release()
	}
}

// find returns the hold with the id of the request, if it belongs to the process of the request.
func (a *Agent) find(r *request, id string) (*hold, error) {
	a.mu.Lock()
	h := a.holds[id]
	a.mu.Unlock()
	switch {
	case id == "":
		return nil, invalid("the parameter id is missing")
	case h == nil:
		return nil, &failure{http.StatusNotFound, "unknown_id", errors.New("no hold has this id; it may have ended")}
	case !h.peer.same(r.peer):
		return nil, &failure{http.StatusForbidden, "forbidden",
			fmt.Errorf("the hold belongs to %v, and the request comes from %v", h.peer, r.peer)}
	}
	return h, nil
}

// A renewal is the answer to a request to renew.
type renewal struct {
	Valid  int64    `json:"valid_ms"`
	Renew  int64    `json:"renew_ms"`
	Serial int64    `json:"serial"`
	Ended  []string `json:"ended,omitempty"`
	condition
}

func (a *Agent) renew(r *request) (any, error) {
	a.clock.Ask() // Otherwise received could be earlier than the client sent its request: see [clock.Clock.Ask].
	received := a.clock.Now()
	ids := r.list("id", maxIDs)
	if err := r.check(); err != nil {
		return nil, err
	}
	answer := renewal{Valid: a.validity().Milliseconds(), Renew: a.renewal(), Serial: a.renewals.Add(1)}
	var renewed []*hold
	for _, id := range ids {
		h, err := a.find(r, id)
		if f := (*failure)(nil); errors.As(err, &f) && f.code == "forbidden" {
			return nil, err
		}
		switch {
		case err != nil || h.expired() || h.held().Err() != nil || a.evicted.Err() != nil:
			answer.Ended = append(answer.Ended, id)
		case !h.valid():
			return nil, second.Unavailable(cmp.Or(a.locks.Err(), errNoLease))
		default:
			renewed = append(renewed, h)
		}
	}
	for _, h := range renewed {
		if !h.renew(received) {
			answer.Ended = append(answer.Ended, h.id)
		}
	}
	if at := a.condition(); at.State != "connected" {
		answer.condition = at
	}
	return answer, nil
}

var errNoLease = errors.New("the session of the agent in the store was not renewed for a while")

func (a *Agent) release(r *request) (any, error) {
	id, why := r.text("id"), released
	switch word := r.text("unsettled"); word {
	case "":
	case "1":
		why = unsettled
	default:
		r.wrong("unsettled is %q; want 1, or nothing", word)
	}
	err := r.check()
	if err != nil {
		return nil, err
	}
	h, err := a.find(r, id)
	if err != nil {
		return nil, err
	}
	if h.expired() { // the client had to stop before, so this is no clean release
		why = notRenewed
		err = second.Lost(second.ByLease, "the hold was not renewed for %v", a.config.Lease)
	}
	return struct{}{}, cmp.Or(err, h.end(why))
}

func (a *Agent) listen(r *request) (any, error) {
	id, names := r.text("id"), r.words("for", "contended", "revoke")
	if len(names) == 0 {
		r.wrong("the parameter for is missing")
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	h, err := a.find(r, id)
	if err != nil {
		return nil, err
	}
	h.heed(names)
	return struct{}{}, nil
}

// downgrade makes a writer a reader. The reader is acquired first, so no other writer comes between.
func (a *Agent) downgrade(r *request) (any, error) {
	id := r.text("id")
	if err := r.check(); err != nil {
		return nil, err
	}
	h, err := a.find(r, id)
	if err != nil {
		return nil, err
	}
	h.changing.Lock()
	defer h.changing.Unlock()
	writer, ok := h.held().(*tier.Hold)
	switch {
	case h.ended:
		return nil, tier.ErrReleased
	case !ok || h.wish.mode == "":
		return nil, invalid("only a hold with mode=write of one path can be downgraded")
	case writer.Shared():
		return struct{}{}, nil
	}
	reader, err := a.locks.RWMutex(h.wish.paths[0]).RAcquire(writer.Context(r.Context()))
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.tenure = reader
	h.mu.Unlock()
	a.mu.Lock()
	for _, one := range h.seats {
		one.reads = true
	}
	a.mu.Unlock()
	return struct{}{}, writer.Release()
}

// A stream writes lines to a client.
type stream struct {
	w      http.ResponseWriter
	within time.Duration // for how long a write may block
	begun  bool
	failed bool // a write has failed; nothing can be sent after it
}

func newStream(w http.ResponseWriter, within time.Duration) *stream {
	return &stream{w: w, within: within}
}

// write sends a line. It returns false if the client does not read.
func (s *stream) write(line any) bool {
	if !s.begun {
		s.w.Header().Set("Content-Type", "application/x-ndjson")
		s.begun = true
	}
	control := s.put(line)
	defer control.SetWriteDeadline(time.Time{})
	s.failed = s.failed || control.Flush() != nil
	return !s.failed
}

// put writes a line to the buffer. After the last line, the end of the answer sends both in one packet.
func (s *stream) put(line any) *http.ResponseController {
	control := http.NewResponseController(s.w)
	_ = control.SetWriteDeadline(time.Now().Add(s.within)) // an error shows in the write
	s.failed = s.failed || json.NewEncoder(s.w).Encode(line) != nil
	return control
}
