package zknode

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
	"github.com/tierlock/tierlock/internal/zknode/internal/link"
)

// An Option changes how [Dial] connects. Dial checks the options.
type Option interface{ apply(*options) }

// An optionOf is a function that sets an option of type T.
type optionOf[T any] func(*T)

func (o optionOf[T]) apply(to *T) { o(to) }

type (
	option     = optionOf[options]
	lockOption = optionOf[Lock]
)

type options struct {
	link.Config
	acl   []zk.ACL
	kazoo bool
	data  []byte // the content of znodes; if it is nil, the content is a description of the process
}

// WithSettings sets the settings that every store has.
func WithSettings(settings second.Settings) Option {
	return option(func(o *options) { o.Settings = settings })
}

// WithSessionTimeout sets the session timeout that the client requests.
func WithSessionTimeout(d time.Duration) Option { return option(func(o *options) { o.TTL = d }) }

// WithLeaseMargin sets the margin of the lease: a lock counts as lost this long before the servers can grant it to another client.
func WithLeaseMargin(d time.Duration) Option { return option(func(o *options) { o.Margin = d }) }

// WithLogger sets the logger.
func WithLogger(logger *slog.Logger) Option { return option(func(o *options) { o.Logger = logger }) }

// WithLabel sets a name for this process.
func WithLabel(label string) Option { return option(func(o *options) { o.Label = label }) }

// WithACL sets the ACL of lock nodes and of the parents that are created for them.
func WithACL(acl []zk.ACL) Option { return option(func(o *options) { o.acl = acl }) }

// WithAuth adds credentials. They are presented again on each reconnect.
func WithAuth(scheme string, credentials []byte) Option {
	return option(func(o *options) { o.Auth = append(o.Auth, link.Credential{Scheme: scheme, Secret: credentials}) })
}

// WithTLS connects with TLS. A nil cfg stands for an empty one.
func WithTLS(cfg *tls.Config) Option {
	return option(func(o *options) { o.TLS = cmp.Or(cfg.Clone(), new(tls.Config)) })
}

// WithDialContext replaces the dialing of TCP connections. The dialer also has to look up names.
func WithDialContext(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return option(func(o *options) { o.Dial, o.LookUp = dial, nil })
}

// WithNodeData sets the content of znodes. By default the content is a description of the process.
func WithNodeData(data []byte) Option {
	return option(func(o *options) { o.data = append([]byte{}, data...) }) // the copy is never nil, even if data is
}

// WithKazoo creates two znodes for each contender. The second znode is for kazoo's patterns.
func WithKazoo() Option { return option(func(o *options) { o.kazoo = true }) }

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
	case len(o.data) > maxData:
		return fmt.Errorf("node data of %d bytes: want at most %d", len(o.data), maxData)
	case o.Dial == nil:
		return errors.New("nil dial function")
	case slices.ContainsFunc(o.Auth, func(c link.Credential) bool { return c.Scheme == "" }):
		return errors.New("WithAuth: the scheme is empty")
	}
	return o.CheckRest()
}

// defaultPort is ZooKeeper's usual clientPort.
const defaultPort = "2181"

// parseConnect parses a connect string in the same way as other clients of ZooKeeper. It returns the servers with their ports, and the
// chroot: the path below which all other paths are, or "" if there is none. An error says what to write instead.
func parseConnect(connect string) (servers []string, chroot string, err error) {
	if strings.Contains(connect, "@") { // the error does not quote the string, because credentials must not be logged
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
	if path == "" { // an empty path after the slash is permitted, as in other clients
		return hosts, "", nil
	}
	chroot = "/" + path
	if strings.Contains(path, ",") || strings.Contains(path, ":") && strings.ContainsFunc(path, separates) {
		return "", "", errors.New("want one path, behind the last server")
	}
	if short := strings.TrimRight(chroot, "/"); short != chroot {
		return "", "", fmt.Errorf("a slash at the end; write %q", hosts+short)
	}
	return hosts, chroot, ValidatePath(chroot)
}

// address checks a server name. If it has no port, address adds the default port.
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

// separates reports whether r is a character that a user may have put between servers instead of a comma.
func separates(r rune) bool { return r == ';' || r == '|' || unicode.IsSpace(r) }

// ValidatePath returns an error if path cannot name a lock. A path is absolute and has at most 1024 bytes. It has no empty component, no
// "." and no "..". It is valid UTF-8 without the characters that ZooKeeper forbids; all characters above U+FFFF are forbidden. It is
// neither the root nor below /zookeeper. The error wraps [zk.ErrInvalidPath].
func ValidatePath(path string) error {
	if err := second.CheckPath("zklock", path, checkComponents); err != nil {
		return fmt.Errorf("%w: %w", err, zk.ErrInvalidPath)
	}
	return nil
}

func checkComponents(path string) error {
	switch {
	case path[0] != '/':
		return errors.New("the path has to begin with /")
	case path == "/":
		return errors.New("the root cannot be a lock")
	case path == "/zookeeper", strings.HasPrefix(path, "/zookeeper/"):
		return errors.New("/zookeeper is reserved")
	case path == values, strings.HasPrefix(path, values+"/"):
		return errors.New(values + " is reserved for the values of locks")
	}
	for component := range strings.SplitSeq(path[1:], "/") {
		switch component {
		case "":
			return errors.New("empty component")
		case ".", "..":
			return fmt.Errorf("component %q", component)
		}
	}
	// The ZooKeeper Programmer's Guide, "The ZooKeeper Data Model", forbids these characters. The server checks UTF-16 code units. A
	// character above U+FFFF is two surrogates there, and surrogates are forbidden, too.
	for i, r := range path {
		if 0xe000 <= r && r <= 0xf8ff || 0xfff0 <= r { // there are no surrogates here: invalid UTF-8 appears as U+FFFD
			return fmt.Errorf("character %U at byte %d", r, i)
		}
	}
	return nil
}

// parentOf returns the path of the node above path. For a top-level node it returns "".
func parentOf(path string) string {
	return path[:strings.LastIndexByte(path, '/')]
}
