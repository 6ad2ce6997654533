package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// maxValue is the number of bytes that a value has at most, as in package tier.
const maxValue = 16 << 10

func (a *Agent) save(r *request) (any, error) {
	data, err := r.body(maxValue)
	if err != nil {
		return nil, err
	}
	return a.guarded(r, func(ctx context.Context, h *tier.Hold) error { return h.Save(ctx, data) })
}

func (a *Agent) forget(r *request) (any, error) {
	return a.guarded(r, func(ctx context.Context, h *tier.Hold) error { return h.Forget(ctx) })
}

// guarded runs a guarded write under a hold of the client. If the client leaves before the write is answered, the lock is not handed off in
// this host until it is answered.
func (a *Agent) guarded(r *request, write func(context.Context, *tier.Hold) error) (any, error) {
	id, turn := r.text("id"), r.number("turn", 64)
	if err := r.check(); err != nil {
		return nil, err
	}
	h, err := a.find(r, id)
	if err != nil {
		return nil, err
	}
	h.writing.Lock()
	defer h.writing.Unlock()
	if turn > 0 && turn < h.turn { // a later write was executed before, and has the same outcome; the same turn is another try
		return struct{}{}, h.doubt
	}
	hold, ok := h.held().(*tier.Hold)
	if !ok {
		return nil, invalid("only a hold of one lock has a value")
	}
	if h.expired() {
		return nil, tier.ErrLost
	}
	err = write(r.Context(), hold)
	if err == nil || errors.Is(err, tier.ErrUnknown) {
		h.turn, h.doubt = max(turn, h.turn), err
	}
	return struct{}{}, err
}

func (a *Agent) load(w http.ResponseWriter, r *request) error {
	path := r.text("path")
	if err := r.check(); err != nil {
		return err
	}
	if err := a.permit(r.peer, path); err != nil {
		return err
	}
	value, err := a.locks.Mutex(path).Load(r.Context())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Tierlock-Token", strconv.FormatInt(value.Token, 10))
	w.Header().Set("Tierlock-Saved", value.Saved.UTC().Format(time.RFC3339Nano))
	_, _ = w.Write(value.Data) // if the client is gone, it does not matter
	return nil
}

// A census is the answer to the question who holds and who waits.
type census struct {
	Contenders []contender `json:"contenders"` // in the store, the holders first
	Clients    []client    `json:"clients"`    // of this host, the holders first
}

type contender struct {
	Token   string    `json:"token"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Label   string    `json:"label,omitempty"`
	Since   time.Time `json:"since"`
	Shared  bool      `json:"shared,omitempty"`
	Permits int       `json:"permits,omitempty"`
	Of      int       `json:"of,omitempty"`
	Grace   bool      `json:"in_grace_period,omitempty"`
	Asked   bool      `json:"revoke_requested,omitempty"`
	Own     bool      `json:"own,omitempty"` // it is the agent, for the clients of this host
}

type client struct {
	PID     int       `json:"pid"`
	UID     int       `json:"uid"`
	Command string    `json:"command,omitempty"`
	Label   string    `json:"label,omitempty"`
	Since   time.Time `json:"since"`
	Holds   bool      `json:"holds"`
	Token   string    `json:"token,omitempty"`
	Shared  bool      `json:"shared,omitempty"`
	Permits int       `json:"permits,omitempty"`

	peer *peer
}

func (a *Agent) who(r *request) (any, error) {
	path, of := r.text("path"), int(r.number("of", 32))
	if err := r.check(); err != nil {
		return nil, err
	}
	if err := a.permit(r.peer, path); err != nil {
		return nil, err
	}
	list := a.locks.Mutex(path).Contenders
	if of > 0 {
		list = a.locks.Semaphore(path, of).Contenders
	}
	all, err := list(r.Context())
	if err != nil {
		return nil, err
	}
	answer := census{Contenders: []contender{}, Clients: a.clients(place{path, of > 0})}
	for i, one := range answer.Clients {
		answer.Clients[i].Command = one.peer.command(r.peer)
	}
	host, _ := os.Hostname()
	for _, c := range all {
		answer.Contenders = append(answer.Contenders, contender{
			Token: strconv.FormatInt(c.Token, 10), Host: c.Host, PID: c.PID, Label: c.Label, Since: c.Since, Shared: c.Shared,
			Permits: c.Permits, Of: c.Of, Grace: c.InGracePeriod, Asked: c.Asked,
			Own: c.PID == os.Getpid() && c.Host == host && c.Label == a.config.Label,
		})
	}
	return answer, nil
}

// list returns the paths that clients of this host hold or wait for, as far as the client may use them.
func (a *Agent) list(r *request) (any, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	paths := []string{}
	a.mu.Lock()
	for at := range a.places {
		paths = append(paths, at.path)
	}
	a.mu.Unlock()
	paths = slices.DeleteFunc(paths, func(path string) bool { return a.permit(r.peer, path) != nil })
	slices.Sort(paths)
	return map[string][]string{"paths": slices.Compact(paths)}, nil
}

func (a *Agent) setPermits(r *request) (any, error) {
	path, of := r.text("path"), int(r.number("of", 32))
	if of == 0 {
		r.wrong("the parameter of is missing")
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	if err := a.permit(r.peer, path); err != nil {
		return nil, err
	}
	return struct{}{}, a.locks.Semaphore(path, of).SetPermits(r.Context(), of)
}

func (a *Agent) revoke(r *request) (any, error) {
	path := r.text("path")
	if err := r.check(); err != nil {
		return nil, err
	}
	if err := a.permit(r.peer, path); err != nil {
		return nil, err
	}
	return struct{}{}, a.locks.Mutex(path).Revoke(r.Context())
}

// breakHold removes a contender of any host. A client that may only use a lock must not take it from others, so this is for root and for
// the user of the agent.
func (a *Agent) breakHold(r *request) (any, error) {
	path, token, of := r.text("path"), r.number("token", 64), int(r.number("of", 32))
	if token == 0 {
		r.wrong("the parameter token is missing")
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	if err := a.permit(r.peer, path); err != nil {
		return nil, err
	}
	if !r.peer.operates() {
		return nil, &failure{http.StatusForbidden, "forbidden", fmt.Errorf("break is for root and for the user of the agent; this is %v", r.peer)}
	}
	if of > 0 {
		return struct{}{}, a.locks.Semaphore(path, of).Break(r.Context(), token)
	}
	return struct{}{}, a.locks.Mutex(path).Break(r.Context(), token)
}
