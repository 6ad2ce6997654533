package agent

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// A request is a request of a client. Its parameters are parsed when they are asked for; fault is the first error.
type request struct {
	*http.Request
	peer  *peer
	query url.Values
	asked []string
	fault error
}

// maxPaths and maxIDs are how many paths or ids one request can name. maxHeader is the size of a request without its body: it has room for
// all of the ids.
const (
	maxPaths  = 64
	maxIDs    = 1000
	maxHeader = 64 << 10
)

// serving returns a handler that refuses requests without the right to be here. If handle returns an error, the handler sends it. handle
// must not have written anything then.
func (a *Agent) serving(handle func(http.ResponseWriter, *request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, err := url.ParseQuery(r.URL.RawQuery)
		req := &request{Request: r, peer: peerOf(r.Context()), query: query, fault: err}
		switch given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); {
		case a.config.Secret != "" && subtle.ConstantTimeCompare([]byte(given), []byte(a.config.Secret)) != 1:
			w.Header().Set("Connection", "close") // all users share the connections of TCP
			err = &failure{http.StatusForbidden, "forbidden", errors.New("the token of the request is missing or wrong")}
		case r.URL.Path == "/v1/hold" && a.full(req.peer): // renewals and releases are never refused for this
			if a.refusals.take(a.config.Logger) {
				a.config.Logger.Warn("agent: a user has all its connections, and gets no new holds; raise -clients, or close connections that "+
					"are not needed", "client", req.peer, "clients", a.config.Clients)
			}
			w.Header().Set("Connection", "close")
			err = &failure{http.StatusTooManyRequests, "too_many",
				fmt.Errorf("this user has more than %d connections; raise -clients, or close connections that are not needed", a.config.Clients)}
		default:
			clear(r.Header) // they would use memory for as long as the request waits; no handler reads them
			err = handle(w, req)
		}
		if err != nil {
			a.refuse(w, req, err)
		}
	})
}

// answering returns a handler that sends what handle returns.
func (a *Agent) answering(handle func(*request) (any, error)) http.Handler {
	return a.serving(func(w http.ResponseWriter, r *request) error {
		answer, err := handle(r)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // if the client is gone, no one reads the answer
		return nil
	})
}

// A failure is an error with its status and its code.
type failure struct {
	status int
	code   string
	error
}

func (f *failure) Unwrap() error { return f.error }

func invalid(format string, args ...any) error {
	return &failure{http.StatusBadRequest, "invalid", fmt.Errorf(format, args...)}
}

// The table failures has the statuses and codes of errors of package tier. The first error that matches decides.
var failures = []struct {
	err    error
	status int
	code   string
}{
	{errSpoke, http.StatusBadRequest, "invalid"},
	{tier.ErrClosed, http.StatusServiceUnavailable, "closing"},
	{tier.ErrWaitLimit, http.StatusConflict, "wait_limit"},
	{tier.ErrTooManyPermits, http.StatusConflict, "too_many_permits"},
	{tier.ErrUnknown, http.StatusBadGateway, "ambiguous"},
	{tier.ErrLost, http.StatusGone, "lost"},
	{tier.ErrReleased, http.StatusGone, "lost"},
	{tier.ErrNoValue, http.StatusNotFound, "no_value"},
	{tier.ErrUnavailable, http.StatusServiceUnavailable, "unavailable"},
	{tier.ErrLocked, http.StatusConflict, "locked"},
}

func describe(err error) *failure {
	var f *failure
	var grace *tier.GracePeriodError
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &grace) && !errors.Is(err, tier.ErrWaitLimit):
		return &failure{http.StatusServiceUnavailable, "grace_period", err}
	}
	for _, known := range failures {
		if errors.Is(err, known.err) {
			return &failure{known.status, known.code, err}
		}
	}
	return &failure{http.StatusInternalServerError, "failed", err}
}

// refuse sends an error. If the client is gone, it sends nothing.
func (a *Agent) refuse(w http.ResponseWriter, r *request, err error) {
	f := describe(err)
	if r.Context().Err() != nil {
		return
	}
	a.config.Logger.Debug("agent: request refused", "request", r.Method+" "+r.URL.Path, "code", f.code, "error", err, "client", r.peer)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	_ = json.NewEncoder(w).Encode(map[string]string{"code": f.code, "error": err.Error()})
}

// body reads the body of the request, of up to limit bytes. A handler that blocks has to read the body first: before that, the server does
// not notice the end of the connection.
func (r *request) body(limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	switch {
	case err != nil:
		return nil, invalid("cannot read the body: %w", err)
	case int64(len(data)) > limit:
		return nil, invalid("the body is longer than %d bytes", limit)
	}
	return data, nil
}

// text returns a parameter, or "" if it is not given.
func (r *request) text(name string) string {
	r.asked = append(r.asked, name)
	all := r.query[name]
	if len(all) > 1 {
		r.wrong("the parameter %s is given %d times", name, len(all))
	}
	return r.query.Get(name)
}

// list returns all values of a parameter that can be given several times.
func (r *request) list(name string, most int) []string {
	r.asked = append(r.asked, name)
	if len(r.query[name]) > most {
		r.wrong("the parameter %s is given %d times; want %d at most", name, len(r.query[name]), most)
	}
	return r.query[name]
}

// words returns the words of a parameter that are separated by commas. They have to be among those that are known.
func (r *request) words(name string, known ...string) []string {
	text := r.text(name)
	if text == "" {
		return nil
	}
	words := strings.Split(text, ",")
	for _, word := range words {
		if !slices.Contains(known, word) {
			r.wrong("%s is %q; want %s", name, word, strings.Join(known, " or "))
		}
	}
	return words
}

// number returns a parameter that is a positive number, or 0 if it is not given.
func (r *request) number(name string, bits int) int64 {
	text := r.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil || n < 1 {
		r.wrong("%s is %q; want a positive number", name, text)
	}
	return n
}

// limit returns a parameter that is a duration, and whether it is given.
func (r *request) limit(name string) (d time.Duration, given bool) {
	text := r.text(name)
	if text == "" {
		return 0, false
	}
	d, err := time.ParseDuration(text)
	if text == "0" {
		d, err = 0, nil
	}
	if err != nil || d < 0 {
		r.wrong("%s is %q; want a duration such as 500ms or 10s", name, text)
	}
	return d, true
}

func (r *request) wrong(format string, args ...any) {
	if r.fault == nil {
		r.fault = fmt.Errorf(format, args...)
	}
}

// check returns the first error of the parameters. Each parameter that no method has asked for is an error, too, because a misspelled
// limit would be no limit.
func (r *request) check() error {
	for name := range r.query {
		if !slices.Contains(r.asked, name) {
			r.wrong("unknown parameter %q; want %s", name, strings.Join(r.asked, ", "))
		}
	}
	if r.fault != nil {
		return &failure{http.StatusBadRequest, "invalid", r.fault}
	}
	return nil
}
