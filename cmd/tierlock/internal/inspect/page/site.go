// Package page shows locks on a web page: the holders, the waiters, and a history of holds. The page is read-only.
package page

import (
	"embed"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
)

//go:embed assets
var assets embed.FS

// A Site serves the page at one address.
type Site struct {
	listener net.Listener
	server   *http.Server
	name     string // the name of the host as the user has given it
	public   bool
	album    album
	state    atomic.Pointer[[]byte] // JSON; nil before the first poll
}

// Listen listens on an address, host:port, for a page about a path of a store. The parameter every is the interval of the polls. Unless
// public is true, the address has to be one that other machines cannot reach.
func Listen(address string, public bool, store, path string, every time.Duration) (*Site, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%q: want host:port, such as 127.0.0.1:8080", address)
	}
	if ip := net.ParseIP(host); !public && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("other machines can reach %q, and the page has no password; use 127.0.0.1, or confirm with -public", address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Site{listener: listener, name: host, public: public, album: album{store: store, path: path, every: every}}
	s.server = &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	return s, nil
}

// URL returns the URL of the page.
func (s *Site) URL() string { return "http://" + s.listener.Addr().String() + "/" }

// Serve answers requests until Close is called.
func (s *Site) Serve() { _ = s.server.Serve(s.listener) } // the error only says that Close was called

// Close ends the page.
func (s *Site) Close() error {
	s.listener.Close() // the server does not know the listener before Serve
	return s.server.Close()
}

// Show updates the page. It must always be called from the same goroutine.
func (s *Site) Show(sight inspect.Sight) {
	state := s.album.add(sight)
	s.state.Store(&state)
}

func (s *Site) handler() http.Handler {
	mux := http.NewServeMux()
	for path, file := range map[string]struct{ name, kind string }{
		"/{$}":      {"page.html", "text/html; charset=utf-8"},
		"/page.css": {"page.css", "text/css; charset=utf-8"},
		"/page.js":  {"page.js", "text/javascript; charset=utf-8"},
		"/icon.svg": {"icon.svg", "image/svg+xml"},
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			content, _ := assets.ReadFile("assets/" + file.name) // cannot fail, because the file is part of this program
			w.Header().Set("Content-Type", file.kind)
			w.Write(content)
		})
	}
	mux.HandleFunc("GET /state.json", func(w http.ResponseWriter, _ *http.Request) {
		state := s.state.Load()
		if state == nil {
			http.Error(w, "no data yet", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(*state)
	})
	return s.guard(mux)
}

// guard refuses requests that pages of other sites have caused. The name of another site may resolve to this address, but its Host header
// still has the name of that site.
func (s *Site) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
			"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !s.known(r.Host) {
			http.Error(w, "wrong host name; use the address of this page, or the name given to -http", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// The method known reports whether a Host header has the name of this site.
func (s *Site) known(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	switch {
	case ip != nil:
		return s.public || ip.IsLoopback()
	case strings.EqualFold(host, "localhost"):
		return true
	}
	return s.public && s.name != "" && strings.EqualFold(host, s.name)
}
