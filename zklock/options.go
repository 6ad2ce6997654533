package zklock

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// An Option changes how [Dial] connects. Options are checked by Dial.
type Option interface {
	second.RegistryOption
	apply(*options)
}

// An optionOf sets what it is of.
type optionOf[T any] struct {
	second.Option
	set func(*T)
}

func (o optionOf[T]) apply(to *T) { o.set(to) }

type (
	option     = optionOf[options]
	lockOption = optionOf[Lock]
)

type options struct {
	link.Config
	acl   []zk.ACL
	auth  []credential
	kazoo bool
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
	return option{set: func(o *options) { o.TTL = d }}
}

// WithLeaseMargin sets how long before the server can give it away a lock counts as
// lost; default (also for 0) a third of the negotiated timeout, at most half of it. It
// is the time that a holder has to stop, less what clocks go wrong meanwhile. What is
// left of the session timeout, less a quarter for the renewals, is how long an outage
// may last without a loss.
func WithLeaseMargin(d time.Duration) Option {
	return option{set: func(o *options) { o.Margin = d }}
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
	return option{set: func(o *options) { o.acl = acl }}
}

// WithAuth adds credentials, such as "digest" and "user:password". They are presented
// again on each reconnect.
func WithAuth(scheme string, credentials []byte) Option {
	return option{set: func(o *options) { o.auth = append(o.auth, credential{scheme, credentials}) }}
}

// WithTLS connects with TLS, as servers want on their secureClientPort. Each server has to show a
// certificate for its host as the connect string names it, or for the ServerName of cfg if there is
// one. Servers ask for a client certificate if they are not told otherwise; it goes into cfg, too, and
// is a credential of scheme "x509", for [WithACL]. A nil cfg is an empty one: the authorities of the
// system, and no client certificate.
//
// The handshake may take a sixth of the session timeout, at most 2 s, on each connection anew.
func WithTLS(cfg *tls.Config) Option {
	return option{set: func(o *options) { o.TLS = cmp.Or(cfg.Clone(), new(tls.Config)) }}
}

// WithDialContext replaces the dialing of TCP connections, as for a proxy or for tests. The address
// is host:port as in the connect string, so names are the dialer's to look up; ctx gives it a
// second. If dial goes on after that, the client tries the next server, and Close does not wait for
// dial either. TLS comes on top, if WithTLS is given.
func WithDialContext(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return option{set: func(o *options) { o.Dial, o.LookUp = dial, nil }}
}

// WithLogger sets where to report what no return value can carry; by default what is of WARN or above goes to [slog.Default], as it
// is at that time, and the rest nowhere.
//
//   - WARN: a lock is lost, once per hold, with path, token and cause, unless the client was closed;
//     the connection is away for longer than a third of the session timeout, once per outage, or
//     cannot be made at all, after 3 s and then ever more rarely; Dial cannot look up some of the
//     servers; the session has expired; what should be gone cannot be deleted; a writer that reads now
//     cannot let readers in; the servers are configured so that the lease is not safe; another version of
//     the client library than the tested one is linked, once per process; and what package
//     tier warns of: see tier.Mutex.Acquire and tier.WithLeakDetection.
//   - INFO: the connection is back, and after how long (not each time if it keeps breaking); there
//     is a new session; children of a lock path that are no lock nodes.
//   - DEBUG: each failure to connect, and what the client library says.
//
// Of a client made by [Attach] the connection is not followed.
//
// The logger may block, panic or call back: it runs in a goroutine of its own, and no lock and no connection waits for it. While it
// blocks, 256 lines wait; later ones are dropped, and the next line that it takes says how many. Close waits for the logger for a
// second at most.
func WithLogger(logger *slog.Logger) Option {
	return option{set: func(o *options) { o.Logger = logger }}
}

// WithLabel sets a name for this process that Contenders shows beside its host and pid;
// at most 256 bytes of UTF-8, and only characters that are printed.
func WithLabel(label string) Option {
	return option{set: func(o *options) { o.Label = label }}
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
	return option{set: func(o *options) { o.kazoo = true }}
}

func newOptions(opts []Option) (options, error) {
	o := options{
		Config: link.Config{
			Settings: second.Defaults,
			Dial:     new(net.Dialer).DialContext,
			LookUp:   net.DefaultResolver.LookupHost,
		},
		acl: zk.WorldACL(zk.PermAll),
	}
	for _, opt := range opts {
		opt.apply(&o)
	}
	return o, o.check()
}

func (o options) check() error {
	switch {
	case o.TTL < time.Millisecond || o.TTL > math.MaxInt32*time.Millisecond:
		return fmt.Errorf("session timeout %v: not within 1ms and %v", o.TTL, math.MaxInt32*time.Millisecond)
	case len(o.acl) == 0:
		return errors.New("empty ACL")
	case o.Dial == nil:
		return errors.New("nil dial function")
	case slices.ContainsFunc(o.auth, func(c credential) bool { return c.scheme == "" }):
		return errors.New("auth without a scheme")
	}
	return o.CheckRest("session timeout")
}

// defaultPort is ZooKeeper's clientPort in every example of a configuration.
const defaultPort = "2181"

// parseConnect takes a connect string apart, as other clients of ZooKeeper do: the servers, with their ports, and the path below which all
// others are, "" for none. An error says what to write instead.
func parseConnect(connect string) (servers []string, chroot string, err error) {
	if strings.Contains(connect, "@") { // which is not for logs
		return nil, "", errors.New("connect string with an @: credentials are given to WithAuth")
	}
	hosts, chroot, err := splitConnect(strings.TrimSpace(connect))
	if err != nil {
		return nil, "", fmt.Errorf("connect string %q: %w", connect, err)
	}
	for _, host := range strings.Split(hosts, ",") {
		server, err := address(strings.TrimSpace(host))
		if err != nil {
			return nil, "", fmt.Errorf("connect string %q: %w", connect, err)
		}
		servers = append(servers, server)
	}
	return servers, chroot, nil
}

func splitConnect(connect string) (hosts, chroot string, err error) {
	if connect == "" {
		return "", "", errors.New("it is empty; want host:port,host:port/path")
	}
	if scheme, rest, ok := strings.Cut(connect, "://"); ok {
		return "", "", fmt.Errorf("it has no scheme such as %s; write %q", scheme, rest)
	}
	hosts, path, _ := strings.Cut(connect, "/")
	if path == "" { // also behind a slash, as with other clients
		return hosts, "", nil
	}
	chroot = "/" + path
	if strings.Contains(path, ",") || strings.Contains(path, ":") && strings.ContainsFunc(path, separates) {
		return "", "", errors.New("want the path once, behind the last server")
	}
	if short := strings.TrimRight(chroot, "/"); short != chroot {
		return "", "", fmt.Errorf("a slash at the end; write %q", hosts+short)
	}
	return hosts, chroot, ValidatePath(chroot)
}

// address checks a server and completes its port.
func address(server string) (string, error) {
	if server == "" {
		return "", errors.New("a server is missing; want host:port,host:port")
	}
	if strings.ContainsFunc(server, separates) {
		return "", fmt.Errorf("commas separate servers; write %q", strings.Join(strings.FieldsFunc(server, separates), ","))
	}
	if ip, _ := netip.ParseAddr(server); ip.Is6() {
		return "", fmt.Errorf("server %q: IPv6 addresses go in brackets, as in [::1]:%s", server, defaultPort)
	}
	complete := server
	if !strings.Contains(server, ":") || strings.HasSuffix(server, "]") {
		complete += ":" + defaultPort
	}
	host, port, err := net.SplitHostPort(complete)
	if err != nil {
		return "", fmt.Errorf("server %q: want host:port, or [address]:port for IPv6: %w", server, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || n == 0 {
		return "", fmt.Errorf("server %q: want host:port, with a port from 1 to 65535", server)
	}
	return complete, nil
}

// separates reports whether r is what somebody may have put between servers.
func separates(r rune) bool { return r == ';' || r == '|' || unicode.IsSpace(r) }

// ValidatePath reports whether path may name a lock: absolute, no empty component, no
// "." or "..", valid UTF-8 without the characters that ZooKeeper forbids (among them all
// above U+FFFF), not the root, not under /zookeeper, at most 1024 bytes. The error wraps
// [zk.ErrInvalidPath].
func ValidatePath(path string) error {
	if err := second.CheckPath("zklock", path, checkComponents); err != nil {
		return fmt.Errorf("%w: %w", err, zk.ErrInvalidPath)
	}
	return nil
}

func checkComponents(path string) error {
	switch {
	case path[0] != '/':
		return errors.New("it has to begin with /")
	case path == "/":
		return errors.New("the root cannot be a lock")
	case path == "/zookeeper", strings.HasPrefix(path, "/zookeeper/"):
		return errors.New("/zookeeper is reserved")
	}
	for component := range strings.SplitSeq(path[1:], "/") {
		switch component {
		case "":
			return errors.New("empty component")
		case ".", "..":
			return fmt.Errorf("component %q", component)
		}
	}
	// As in the ZooKeeper Programmer's Guide, "The ZooKeeper Data Model", control characters apart. The server looks at UTF-16, in which a
	// character above U+FFFF is two surrogates.
	for i, r := range path {
		if 0xe000 <= r && r <= 0xf8ff || 0xfff0 <= r { // no surrogates: what is no UTF-8 is U+FFFD here
			return fmt.Errorf("character %U at byte %d", r, i)
		}
	}
	return nil
}

// parentOf returns the path of the node above path, "" above a top-level node.
func parentOf(path string) string {
	return path[:strings.LastIndexByte(path, '/')]
}
