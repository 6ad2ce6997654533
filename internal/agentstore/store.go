// Package agentstore translates the commands of internal/queue into requests to the agent of a host. docs/agent.md has the protocol.
// Package agentlock makes it public.
package agentstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// A store translates commands into requests to the agent. To the agent, each contender is a request that waits, and then streams for as
// long as the contender holds. The agent itself keeps the queue.
type store struct {
	tier   *queue.Tier
	label  string
	socket string
	client http.Client
	names  atomic.Int64
	clock  atomic.Int64 // orders the views of contenders
	lease  atomic.Int64 // a time.Duration
	serial atomic.Int64 // of the newest renewal that the agent has answered
	beaten atomic.Int64 // when the newest renewal was sent that the agent has answered, on the clock of the leases

	all sync.WaitGroup // the goroutines of the streams
	mu  sync.Mutex     // guards the field below
	at  map[string]*stream
}

var errDial = errors.New("cannot connect")

// A Dialer opens a connection to the agent.
type Dialer func(ctx context.Context) (net.Conn, error)

// Open returns the tier of a process that uses the agent at socket. Its errors name the socket.
func Open(socket string, dial Dialer, o second.Settings) *queue.Tier {
	s := &store{socket: socket, label: o.Label, at: make(map[string]*stream)}
	s.client.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := dial(ctx)
			if err != nil {
				err = fmt.Errorf("%w: %w", errDial, err)
			}
			return conn, err
		},
		MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, DisableCompression: true,
	}
	s.tier = queue.New(queue.Config{
		Package: "agentlock", Store: "the agent", Settings: o,
		Lost: func(queue.Ref) string { return "the agent has ended the hold" },
	}, s)
	s.tier.Start()
	return s.tier
}

// Name returns a name that only this process uses.
func (s *store) Name(string) string { return strconv.FormatInt(s.names.Add(1), 10) }

// Close ends all streams and connections.
func (s *store) Close() {
	s.drop()
	s.all.Wait()
	s.client.CloseIdleConnections()
}

func (s *store) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.at {
		one.hangUp()
	}
}

// Do sends the request for a command.
func (s *store) Do(ctx context.Context, c queue.Command) queue.Answer {
	switch c.Op {
	case queue.Open:
		return s.open(ctx)
	case queue.Beat:
		return s.beat(ctx, c)
	case queue.Enter:
		if c.Old.ID != "" {
			if a := s.leave(ctx, c.Old, c.Unsettled); a.Outcome != queue.Done {
				return a
			}
		}
		return s.enter(c)
	case queue.Try:
		return s.try(ctx, c)
	case queue.Look:
		return s.look(c)
	case queue.Leave:
		if c.Session == "" { // it may belong to any host
			query := about(c.Ref)
			query.Set("token", strconv.FormatInt(c.Token, 10))
			a := s.send(ctx, http.MethodPost, "break", query, nil, nil)
			if a.Outcome == queue.Gone {
				a = queue.Answer{Outcome: queue.Done, Removed: queue.Missing}
			}
			return a
		}
		return s.leave(ctx, c.Ref, c.Unsettled)
	case queue.Share:
		return s.share(ctx, c)
	case queue.Weigh: // the agent gets all permits back when the last one is released
		return s.look(c)
	case queue.Audit, queue.Drop: // the agent has removed contenders that this process does not know: their connections have ended
		return queue.Answer{Outcome: queue.Done}
	case queue.Goodbye:
		s.drop()
		return queue.Answer{Outcome: queue.Done}
	case queue.List:
		return s.list(ctx, c)
	case queue.Ask:
		return s.send(ctx, http.MethodPost, "revoke", url.Values{"path": {c.Path}}, nil, nil)
	case queue.Resize:
		return s.send(ctx, http.MethodPost, "permits", url.Values{"path": {c.Path}, "of": {strconv.Itoa(c.Permits)}}, nil, nil)
	case queue.Save:
		return s.save(ctx, c)
	case queue.Load:
		return s.load(ctx, c)
	}
	return queue.Answer{Outcome: queue.Denied, Err: errors.ErrUnsupported}
}

// request sends a request. The caller closes the body of the response.
func (s *store) request(ctx context.Context, method, what string, query url.Values, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://agent/v1/"+what+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return s.client.Do(r)
}

// send sends a request, and decodes its answer into result, unless that is nil.
func (s *store) send(ctx context.Context, method, what string, query url.Values, body []byte, result any) queue.Answer {
	response, err := s.request(ctx, method, what, query, body)
	if err != nil {
		return s.unreached(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return refused(response)
	}
	switch to := result.(type) {
	case nil:
		_, err = io.Copy(io.Discard, response.Body)
	case *[]byte:
		*to, err = io.ReadAll(response.Body)
	default:
		err = json.NewDecoder(response.Body).Decode(to)
	}
	if err != nil {
		return s.unreached(ctx, err)
	}
	return queue.Answer{Outcome: queue.Done}
}

// unreached returns the answer to a request without a response. Only a request for which there was no connection was certainly not
// executed.
func (s *store) unreached(ctx context.Context, err error) queue.Answer {
	a := queue.Answer{Outcome: queue.Unknown, Err: fmt.Errorf("the agent at %s: %w", s.socket, cause(ctx, err))}
	if errors.Is(err, errDial) {
		a.Outcome = queue.Failed
	}
	a.Away = a.Err
	return a
}

// cause returns the part of an error that says what happened. The rest is the URL of the request.
func cause(ctx context.Context, err error) error {
	if in := (*url.Error)(nil); errors.As(err, &in) {
		err = in.Err
	}
	return cmp.Or(context.Cause(ctx), err)
}

// refused returns the answer to a request that the agent refuses.
func refused(response *http.Response) queue.Answer {
	var text struct{ Code, Error string }
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<16)).Decode(&text); err != nil {
		text.Error = response.Status
	}
	a := queue.Answer{Outcome: queue.Denied, Err: errors.New(text.Error)}
	switch text.Code {
	case "locked":
		a.Outcome, a.Err = queue.Locked, nil
	case "grace_period":
		a.Outcome, a.Err, a.InGracePeriod = queue.Locked, nil, true
	case "unknown_id", "lost":
		a.Outcome = queue.Gone
	case "too_many_permits":
		a.Err = fmt.Errorf("%w: %s", second.ErrTooManyPermits, text.Error)
	case "ambiguous":
		a.Outcome = queue.Unknown
	case "too_many":
		a.Outcome = queue.Failed
	case "unavailable", "closing":
		a.Outcome, a.Away = queue.Failed, a.Err
	}
	return a
}

// A condition is the state of the agent's own connection.
type condition struct {
	State string `json:"state"`
	Error string `json:"error"`
	Grace int64  `json:"grace_ms"`
}

// note records a grace period of the store, and returns why the store cannot be used.
func (s *store) note(at condition, sent time.Time) error {
	switch at.State {
	case "grace_period":
		s.tier.InGracePeriod(time.Duration(at.Grace)*time.Millisecond, sent, at.Error)
	case "unavailable", "closing":
		return errors.New(at.Error)
	}
	return nil
}

// open asks for the lease. The session is this process's own: the agent knows only holds.
func (s *store) open(ctx context.Context) queue.Answer {
	var status struct {
		Version int   `json:"version"`
		Lease   int64 `json:"lease_ms"`
		condition
	}
	sent, begun := time.Now(), s.tier.Now()
	a := s.send(ctx, http.MethodGet, "status", nil, nil, &status)
	if a.Outcome != queue.Done {
		return a
	}
	if status.Version != 1 || status.Lease <= 0 {
		err := fmt.Errorf("the agent at %s speaks version %d of the protocol; want 1", s.socket, status.Version)
		return queue.Answer{Outcome: queue.Denied, Err: err}
	}
	a.Away = s.note(status.condition, sent)
	a.Name, a.TTL = fmt.Sprintf("%d at %s", s.names.Add(1), s.socket), time.Duration(status.Lease)*time.Millisecond
	s.lease.Store(int64(a.TTL))
	s.beaten.Store(int64(begun))
	return a
}

// atOnce is how many holds one request renews.
const atOnce = 60

// beat renews the holds. If one of them has ended, the answer has its view.
func (s *store) beat(ctx context.Context, c queue.Command) queue.Answer {
	begun := s.tier.Now()
	if int64(begun)-s.beaten.Load() >= s.lease.Load() {
		return queue.Answer{Outcome: queue.Expired, Err: errors.New("the agent was not reached for a whole lease")}
	}
	holds := make(map[string]queue.Ref)
	unnamed := func() (ids []string) { // the holds that no request has named
		for _, ref := range c.Among {
			one := s.find(ref.ID)
			if one == nil || len(ids) == atOnce {
				continue
			}
			if id := one.hold(); id != "" && holds[id] == (queue.Ref{}) {
				holds[id] = ref
				ids = append(ids, id)
			}
		}
		return ids
	}
	all := queue.Answer{Outcome: queue.Done}
	// A hold that begins during a request is named by the next one, or its stream sees the new serial.
	for ids, first := unnamed(), true; first || len(ids) > 0; ids, first = unnamed(), false {
		renewed, a := s.renew(ctx, ids)
		if a.Outcome != queue.Done {
			a.Views = all.Views
			return a
		}
		all.Away = cmp.Or(all.Away, a.Away)
		for _, id := range renewed.Ended {
			all.Views = append(all.Views, s.gone(holds[id], second.Lost(second.BySession, "the agent has ended the hold")))
		}
		s.serial.Store(renewed.Serial)
	}
	s.beaten.Store(int64(begun))
	return all
}

// A renewal is the answer to a request to renew.
type renewal struct {
	Serial int64    `json:"serial"`
	Ended  []string `json:"ended"`
	condition
}

// renew renews the holds with these ids. Away, of the answer, says why the agent cannot use the store.
func (s *store) renew(ctx context.Context, ids []string) (renewed renewal, a queue.Answer) {
	sent := time.Now()
	if a = s.send(ctx, http.MethodPost, "renew", url.Values{"id": ids}, nil, &renewed); a.Outcome == queue.Done {
		a.Away = s.note(renewed.condition, sent)
	}
	return renewed, a
}

func (s *store) look(c queue.Command) queue.Answer {
	one := s.find(c.ID)
	if one == nil {
		return queue.Answer{Outcome: queue.Done, View: s.gone(c.Ref, nil)}
	}
	return queue.Answer{Outcome: queue.Done, View: one.state()}
}

// gone returns the view of a contender that is not in the queue.
func (s *store) gone(r queue.Ref, loss error) queue.View {
	return queue.View{ID: r.ID, Token: r.Token, At: s.clock.Add(1), Err: loss}
}

func (s *store) share(ctx context.Context, c queue.Command) queue.Answer {
	one := s.find(c.ID)
	if one == nil {
		return queue.Answer{Outcome: queue.Gone}
	}
	a := s.send(ctx, http.MethodPost, "downgrade", url.Values{"id": {one.hold()}}, nil, nil)
	if a.Outcome == queue.Done {
		a.View = one.change(func(v *queue.View) { v.Reads, v.Behind = true, false })
	}
	return a
}

func (s *store) save(ctx context.Context, c queue.Command) queue.Answer {
	one := s.find(c.ID)
	if one == nil {
		return queue.Answer{Outcome: queue.Gone}
	}
	method := http.MethodPut
	if c.Data == nil {
		method = http.MethodDelete
	}
	query := url.Values{"id": {one.hold()}, "turn": {strconv.FormatInt(c.Turn, 10)}}
	return s.send(ctx, method, "value", query, c.Data, nil)
}

func (s *store) load(ctx context.Context, c queue.Command) queue.Answer {
	response, err := s.request(ctx, http.MethodGet, "value", url.Values{"path": {c.Path}}, nil)
	if err != nil {
		return s.unreached(ctx, err)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusNotFound:
		return queue.Answer{Outcome: queue.Done}
	case http.StatusOK:
	default:
		return refused(response)
	}
	v := new(second.Value)
	v.Token, _ = strconv.ParseInt(response.Header.Get("Tierlock-Token"), 10, 64) // an agent sends both
	v.Saved, _ = time.Parse(time.RFC3339Nano, response.Header.Get("Tierlock-Saved"))
	if v.Data, err = io.ReadAll(response.Body); err != nil {
		return s.unreached(ctx, err)
	}
	return queue.Answer{Outcome: queue.Done, Value: v}
}

// about returns the parameters that name a queue.
func about(r queue.Ref) url.Values {
	query := url.Values{"path": {r.Path}}
	if r.Permits > 0 {
		query.Set("of", strconv.Itoa(r.Permits))
	}
	return query
}

// list returns the queue in the store. In place of the contender of the agent, it has the processes of this host.
func (s *store) list(ctx context.Context, c queue.Command) queue.Answer {
	var found struct {
		Contenders []struct {
			Token, Host, Label string
			PID, Permits, Of   int
			Since              time.Time
			Shared, Own        bool
			Asked              bool `json:"revoke_requested"`
			Grace              bool `json:"in_grace_period"`
		}
		Clients []struct {
			PID, Permits  int
			Label, Token  string
			Since         time.Time
			Holds, Shared bool
		}
	}
	a := s.send(ctx, http.MethodGet, "who", about(c.Ref), nil, &found)
	if a.Outcome != queue.Done {
		return a
	}
	placed := false
	for _, one := range found.Contenders {
		token, _ := strconv.ParseInt(one.Token, 10, 64)
		inStore := second.Contender{
			ID: one.Host + "/" + one.Token, Token: token, Since: one.Since, Host: second.Text(one.Host), PID: one.PID, Label: second.Text(one.Label),
			Shared: one.Shared, Asked: one.Asked, InGracePeriod: one.Grace, Permits: one.Permits, Of: one.Of,
		}
		if !one.Own || len(found.Clients) == 0 {
			a.Queue = append(a.Queue, inStore)
			continue
		}
		if placed {
			continue
		}
		placed = true
		for i, client := range found.Clients {
			local := inStore
			local.ID, local.PID, local.Label = fmt.Sprintf("%s/%d", inStore.ID, i), cmp.Or(client.PID, one.PID), second.Text(client.Label)
			local.Since, local.Shared, local.Permits = client.Since, client.Shared, client.Permits
			if client.Holds {
				local.Token, _ = strconv.ParseInt(client.Token, 10, 64)
			} else if i > 0 { // the token of the agent's contender goes to its first client
				local.Token = 0
			}
			a.Queue = append(a.Queue, local)
		}
	}
	return a
}
