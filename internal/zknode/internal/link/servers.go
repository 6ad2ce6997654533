package link

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"syscall"
	"time"
)

const (
	findTimeout   = 3 * time.Second // limits the first look-up of all names
	lookUpTimeout = time.Second     // limits a later look-up, which delays the next connection
)

// A LookUp finds the addresses of a host. The host may itself be an address.
type LookUp func(ctx context.Context, host string) (addresses []string, err error)

// The type servers chooses the server that the library dials next. It is the library's host provider, and it also gives the address to the
// dialer. The library uses one goroutine for both. The library's own provider looks names up only once, but this one looks a name up each
// time it is dialed.
type servers struct {
	names  []string // host:port, in the order into which the library has shuffled them
	lookUp LookUp   // nil if names are dialed without a look-up
	known  map[string]found
	logger *slog.Logger

	last  int      // the index of the name that Next returned last
	left  []string // the addresses of that name that have not been dialed yet
	tried int      // how many names Next has returned since the last connection or pause
}

// A found is what the look-ups of a name have found so far.
type found struct {
	addresses []string // found by the last look-up that succeeded
	err       error    // the error of a later look-up that failed
}

func (s *servers) Init(names []string) error {
	s.names = names
	return nil
}

func (s *servers) Len() int { return len(s.names) }

// Next returns the server to dial next. It returns the same server again while that server has more addresses. After each server was tried
// without success, the library pauses for a second.
func (s *servers) Next() (server string, pause bool) {
	if len(s.left) > 0 {
		return s.names[s.last], false
	}
	if pause = s.tried == len(s.names); pause {
		s.tried = 0
	}
	s.tried++
	s.last = (s.last + 1) % len(s.names)
	return s.names[s.last], pause
}

// Connected is called when the handshake has succeeded.
func (s *servers) Connected() { s.tried, s.left = 0, nil }

// address returns the address to dial for the server that Next has returned. If the name could not be looked up, it returns an address that
// was found before, and stale is the error of the look-up.
func (s *servers) address(ctx context.Context) (address string, stale error, err error) {
	name := s.names[s.last]
	if s.lookUp == nil {
		return name, nil, nil
	}
	if len(s.left) == 0 {
		ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
		defer cancel()
		s.left = slices.Clone(s.note(name, s.resolve(ctx, name)).addresses)
		rand.Shuffle(len(s.left), func(i, j int) { s.left[i], s.left[j] = s.left[j], s.left[i] })
	}
	f := s.known[name]
	if len(s.left) == 0 {
		return "", nil, f.err
	}
	address, s.left = s.left[0], s.left[1:]
	return address, f.err, nil
}

func (s *servers) resolve(ctx context.Context, name string) found {
	host, port, _ := net.SplitHostPort(name) // cannot fail: the connect string was checked
	hosts, err := s.lookUp(ctx, host)
	if err == nil && len(hosts) == 0 {
		err = fmt.Errorf("lookup %s: no address", host)
	}
	f := found{err: err}
	for _, host := range hosts {
		f.addresses = append(f.addresses, net.JoinHostPort(host, port))
	}
	return f
}

// note stores the result of a look-up. If the look-up failed, note keeps the old addresses, because the name service may be down.
func (s *servers) note(name string, f found) found {
	if f.err != nil {
		f.addresses = s.known[name].addresses
	}
	s.known[name] = f
	return f
}

// find looks up all names before the library starts, because no context would end a look-up inside the library. If no name has an address,
// find fails. When ctx is cancelled, a look-up that has begun continues in the background until it is answered or times out.
func (s *servers) find(ctx context.Context, names []string) error {
	if s.lookUp == nil {
		return nil
	}
	type result struct {
		name string
		found
	}
	results := make(chan result, len(names))
	// This context does not end with ctx. Otherwise the error of the look-up could arrive before the end of ctx is noticed.
	background, cancel := context.WithTimeout(context.WithoutCancel(ctx), findTimeout)
	defer cancel()
	for _, name := range names {
		go func() { results <- result{name, s.resolve(background, name)} }()
	}
	var failed []error
	for range names {
		select {
		case r := <-results:
			s.note(r.name, r.found)
			if r.err != nil {
				failed = append(failed, r.err)
			}
		case <-ctx.Done():
			return fmt.Errorf("look up: %w", context.Cause(ctx))
		}
	}
	if len(failed) == len(names) {
		err := failed[0]
		for _, another := range failed[1:] {
			err = fmt.Errorf("%w; %w", err, another)
		}
		return err
	}
	for _, err := range failed {
		s.logger.Warn("zklock: cannot resolve the name of a server; trying the others", "err", err)
	}
	return nil
}

// The errors below say what prevents a connection, and what the user can do.

// dialError adds the name of the server to err, which may name only the address. The dialer may do more than connect. For example, if it
// uses TLS but the port does not, ZooKeeper takes the first bytes for a frame and closes the connection. If stale is not nil, the name
// could not be looked up, and the address was found before.
func dialError(server string, err, stale error) error {
	if hungUp(err) {
		err = fmt.Errorf("the server closed the connection during the dial; it may have no TLS on this port: %w", err)
	}
	if stale != nil {
		return fmt.Errorf("dial %s, at its last known address: %w; %w", server, err, stale)
	}
	return fmt.Errorf("dial %s: %w", server, err)
}

// tlsAdvice says what may be wrong: the port, the names or the certificates.
func tlsAdvice(err error) string {
	var (
		other     tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
	)
	switch {
	case hungUp(err), errors.As(err, &other):
		return "this may be a port without TLS; use the server's secureClientPort, or leave out WithTLS: "
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer; the server hangs, or it is not ZooKeeper: "
	case errors.As(err, &authority):
		return "RootCAs of the configuration (see WithTLS) has to contain the authority of the server's certificate: "
	case errors.As(err, &name):
		return "use a name that is in the server's certificate, or set ServerName (see WithTLS): "
	case isAlert(err):
		return refusedCertificate
	}
	return ""
}

const refusedCertificate = "the server may require a client certificate that it trusts (Certificates of the configuration, see WithTLS): "

// handshakeError adds the probable reason to err, if the connection ended before the answer.
func handshakeError(err error, secure bool) error {
	suspect := "may require TLS (see WithTLS and its secureClientPort)"
	if secure {
		suspect = "may require a client certificate that it trusts (see WithTLS)"
	}
	switch {
	case isAlert(err): // from TLS 1.3 on, a server checks the client's certificate after the client has finished its handshake
		return fmt.Errorf("%s%w", refusedCertificate, err)
	case hungUp(err):
		return fmt.Errorf("the server hung up; it %s, have no quorum, "+
			"be behind what this client has seen, or be over its maxClientCnxns: %w", suspect, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no answer; the server hangs, or it is not ZooKeeper (an HTTP server waits for more): %w", err)
	}
	return err
}

// otherProtocol returns an error if the first bytes of an answer show that it does not come from ZooKeeper.
func otherProtocol(answer *bufio.Reader) error {
	switch head, _ := answer.Peek(4); {
	case string(head) == "HTTP":
		return errors.New("this is an HTTP server, not ZooKeeper")
	case len(head) == 4 && head[0] == 0x15 && head[1] == 3: // a TLS alert
		return errors.New("this port wants TLS; see WithTLS, or use the server's clientPort")
	}
	return nil
}

func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// isAlert reports whether err says that the peer has sent a TLS alert.
func isAlert(err error) bool {
	var alert *net.OpError
	return errors.As(err, &alert) && alert.Op == "remote error"
}
