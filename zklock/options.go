package zklock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// An Option changes how [Dial] connects. Options are checked by Dial.
type Option func(*options)

// ForDial makes an Option one of those that tierlock.Dial takes.
func (Option) ForDial() {}

type options struct {
	sessionTimeout time.Duration
	margin         time.Duration // 0: a third of the negotiated session timeout
	acl            []zk.ACL
	auth           []credential
	dial           func(ctx context.Context, network, address string) (net.Conn, error)
	lookUp         link.LookUp // nil: dial takes names
	tls            *tls.Config // nil: none
	logger         *slog.Logger
	label          string
	kazoo          bool
}

type credential struct {
	scheme string
	secret []byte
}

// WithSessionTimeout sets the session timeout to ask for; default 15 s. The server
// bounds it to 2–20 of its ticks (of 2 s by default), and the lease needs four of them:
// the client warns, on its logger, about less than 8 s. It is the time for which the
// lock of a process that died stays taken, and with the margin it bounds the lease; the
// package comment has the table.
func WithSessionTimeout(d time.Duration) Option {
	return func(o *options) { o.sessionTimeout = d }
}

// WithLeaseMargin sets how long before the server can give it away a lock counts as
// lost; default (also for 0) a third of the negotiated timeout, at most half of it. It
// is the time that a holder has to stop, less what clocks go wrong meanwhile. What is
// left of the session timeout, less a quarter for the renewals, is how long an outage
// may last without a loss.
func WithLeaseMargin(d time.Duration) Option {
	return func(o *options) { o.margin = d }
}

// WithACL sets the ACL of lock nodes and of the parents that are created for them;
// default is all permissions for everybody. On the lock path a client needs CREATE and
// READ to queue, and DELETE to release a lock.
//
// With zk.AuthACL(zk.PermAll) all is permitted to those who present a password or a client
// certificate that this client presents too, and nothing to others. What is above the path and there
// already stays as it is: whoever may create and delete there can take the place of a path that is empty.
//
// On its own nodes it needs READ, without which the server refuses the checks that renew
// the lease: a client that has to wait gets an error wrapping [zk.ErrNoAuth], and one that
// is granted the lock at once loses it within a sixth of the session timeout.
func WithACL(acl []zk.ACL) Option {
	return func(o *options) { o.acl = acl }
}

// WithAuth adds credentials, such as "digest" and "user:password". They are presented
// again on each reconnect.
func WithAuth(scheme string, credentials []byte) Option {
	return func(o *options) { o.auth = append(o.auth, credential{scheme, credentials}) }
}

// WithTLS connects with TLS, as servers want on their secureClientPort. Each server has to show a
// certificate for its host as the connect string names it, or for the ServerName of cfg if there is
// one. Servers ask for a client certificate if they are not told otherwise; it goes into cfg, too, and
// is a credential of scheme "x509", for [WithACL]. A nil cfg is an empty one: the authorities of the
// system, and no client certificate.
//
// The handshake may take a sixth of the session timeout, at most 2 s, on each connection anew.
func WithTLS(cfg *tls.Config) Option {
	return func(o *options) {
		if o.tls = cfg.Clone(); cfg == nil {
			o.tls = new(tls.Config)
		}
	}
}

// WithDialContext replaces the dialing of TCP connections, as for a proxy or for tests. The address
// is host:port as in the connect string, so names are the dialer's to look up; ctx gives it a
// second. TLS comes on top, if WithTLS is given.
func WithDialContext(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(o *options) { o.dial, o.lookUp = dial, nil }
}

// WithLogger sets where to report what no return value can carry; by default nothing is logged.
//
//   - WARN: a lock is lost, once per hold, with path, token and cause, unless the client was closed;
//     the connection is away for longer than a third of the session timeout, once per outage, or
//     cannot be made at all, after 3 s and then ever more rarely; Dial cannot look up some of the
//     servers; the session has expired; what should be gone cannot be deleted; the servers are
//     configured so that the lease is not safe.
//   - INFO: the connection is back, and after how long (not each time if it keeps breaking); there
//     is a new session; children of a lock path that are no lock nodes.
//   - DEBUG: each failure to connect, and what the client library says.
//
// Of a client made by [Attach] the connection is not followed.
func WithLogger(logger *slog.Logger) Option {
	return func(o *options) { o.logger = logger }
}

// WithLabel sets a name for this process that Contenders shows beside its host and pid;
// at most 256 bytes of UTF-8, and only characters that are printed.
func WithLabel(label string) Option {
	return func(o *options) { o.label = label }
}

// WithKazoo makes locks that exclude kazoo's Lock, WriteLock, ReadLock and Election on the
// same path as they come; without it these need extra_lock_patterns=["lock-"]. Every
// process of this package that shares a path with such a kazoo needs the option: without
// it the process waits for kazoo, but kazoo does not wait for it. It excludes everybody
// whom a lock without it excludes, but kazoo still ignores those: Curator, zk.Lock, and
// processes without the option.
//
// A lock node is then two znodes with one token, created in one transaction and deleted
// in one: queueing, release and requeue cost one write each, as without. A node that waits,
// or is held for a sixth of the session timeout, costs one read more, in the same round
// trip. The lock is lost when either znode is deleted.
//
// kazoo's ReadLock works with this from kazoo 2.9.0 on. An older one also waits for nodes
// behind its own; if one of these is ours, each waits for the other until one gives up.
//
// kazoo expects its path to stay, so create it beforehand as a plain node: parents that
// this package creates are removed when they are empty. A plain node is never made anew when
// its sequence numbers come to their end, and a pair uses two of them.
func WithKazoo() Option {
	return func(o *options) { o.kazoo = true }
}

func newOptions(opts []Option) (options, error) {
	o := options{
		sessionTimeout: 15 * time.Second,
		acl:            zk.WorldACL(zk.PermAll),
		dial:           new(net.Dialer).DialContext,
		lookUp:         net.DefaultResolver.LookupHost,
		logger:         slog.New(slog.DiscardHandler),
	}
	for _, opt := range opts {
		opt(&o)
	}
	return o, o.check()
}

func (o options) check() error {
	switch {
	case o.sessionTimeout < time.Millisecond || o.sessionTimeout > math.MaxInt32*time.Millisecond:
		return fmt.Errorf("session timeout %v: not within 1ms and %v", o.sessionTimeout, math.MaxInt32*time.Millisecond)
	case o.margin < 0:
		return fmt.Errorf("lease margin %v: negative", o.margin)
	case o.margin > o.sessionTimeout/2:
		return fmt.Errorf("lease margin %v: more than half of the session timeout %v", o.margin, o.sessionTimeout)
	case len(o.acl) == 0:
		return errors.New("empty ACL")
	case o.dial == nil:
		return errors.New("nil dial function")
	case o.logger == nil:
		return errors.New("nil logger")
	}
	for _, c := range o.auth {
		if c.scheme == "" {
			return errors.New("auth without a scheme")
		}
	}
	return second.CheckLabel(o.label)
}
