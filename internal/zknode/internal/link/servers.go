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
	findTimeout   = 3 * time.Second // bounds the first look-up of all names
	lookUpTimeout = time.Second     // bounds one that keeps the client from connecting again
)

// A LookUp finds the addresses of a host; the host may be an address itself.
type LookUp func(ctx context.Context, host string) (addresses []string, err error)

// servers choose the server that the library dials next: they are its host provider, and give its dialer the address. The library uses
// one goroutine for both. The library's own provider looks names up only once; here a name is looked up each time it is dialed.
type servers struct {
	names  []string // host:port, in the order that the library has shuffled them into
	lookUp LookUp   // nil if names are dialed as they are
	known  map[string]found
	logger *slog.Logger

	last  int      // the one that was named last
	left  []string // its addresses that have not been dialed yet
	tried int      // how many have been named since the last connection or pause
}

// A found is the newest result of looking up a name.
type found struct {
	addresses []string // of the last look-up that succeeded
	err       error    // of a later one that failed
}

func (s *servers) Init(names []string) error {
	s.names = names
	return nil
}

func (s *servers) Len() int { return len(s.names) }

// Next returns the server to dial next: the same one as long as it has more addresses. The library pauses for a second after each server
// was tried in vain.
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

// address returns the address to dial for the server that Next has returned. If the name could not be looked up and the address is an old
// one, stale is the reason.
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
	host, port, _ := net.SplitHostPort(name) // it was checked that it is both
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

// note keeps the old addresses if there are no new ones, since the name service may be down.
func (s *servers) note(name string, f found) found {
	if f.err != nil {
		f.addresses = s.known[name].addresses
	}
	s.known[name] = f
	return f
}

// find looks up all names before the library starts, because no context would end a look-up inside the library. find fails if no name has
// an address. When ctx is cancelled, a query under way goes on in the background until it is answered or times out.
func (s *servers) find(ctx context.Context, names []string) error {
	if s.lookUp == nil {
		return nil
	}
	type result struct {
		name string
		found
	}
	results := make(chan result, len(names))
	// This context does not end with ctx: the error of the look-up could otherwise arrive before the end of ctx itself.
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

// The errors below say what prevents a connection, and what to do about it.

// dialError adds the name of the server, of which the cause may have only the address. A dialer may do more than connect: a server whose
// ZooKeeper port gets TLS takes its first bytes for a frame, and closes the connection. If stale is not nil, the address was an old one,
// because the name could not be looked up.
func dialError(server string, err, stale error) error {
	if hungUp(err) {
		err = fmt.Errorf("the server hung up on the dialer; it may have no TLS on this port: %w", err)
	}
	if stale != nil {
		return fmt.Errorf("dial %s, at its last known address: %w; %w", server, err, stale)
	}
	return fmt.Errorf("dial %s: %w", server, err)
}

// tlsAdvice says what may be wrong with the port, the names, or the certificates.
func tlsAdvice(err error) string {
	var (
		other     tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
	)
	switch {
	case hungUp(err), errors.As(err, &other):
		return "this may be a port without TLS; use the server's secureClientPort, or no WithTLS: "
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer; the server hangs, or it is not ZooKeeper: "
	case errors.As(err, &authority):
		return "RootCAs of the configuration (see WithTLS) has to hold the authority of the server's certificate: "
	case errors.As(err, &name):
		return "use a name that is in the server's certificate, or set ServerName (see WithTLS): "
	case isAlert(err):
		return refusedCertificate
	}
	return ""
}

const refusedCertificate = "the server may want a client certificate that it trusts (Certificates of the configuration, see WithTLS): "

// handshakeError adds the probable reason if the connection ended before the answer.
func handshakeError(err error, secure bool) error {
	suspect := "may want TLS (see WithTLS and its secureClientPort)"
	if secure {
		suspect = "may want a client certificate that it trusts (see WithTLS)"
	}
	switch {
	case isAlert(err): // from TLS 1.3 on, a server looks at the certificate of a client that has gone on
		return fmt.Errorf("%s%w", refusedCertificate, err)
	case hungUp(err):
		return fmt.Errorf("the server hung up; it %s, have no quorum, "+
			"be behind what this client has seen, or be over its maxClientCnxns: %w", suspect, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no answer; the server hangs, or it is not ZooKeeper (an HTTP server waits for more): %w", err)
	}
	return err
}

// otherProtocol recognizes by its first bytes an answer that does not come from ZooKeeper.
func otherProtocol(answer *bufio.Reader) error {
	switch head, _ := answer.Peek(4); {
	case string(head) == "HTTP":
		return errors.New("this is an HTTP server, not ZooKeeper")
	case len(head) == 4 && head[0] == 0x15 && head[1] == 3: // an alert
		return errors.New("this port wants TLS; see WithTLS, or use the server's clientPort")
	}
	return nil
}

func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// isAlert reports whether the other side of TLS has sent an alert.
func isAlert(err error) bool {
	var alert *net.OpError
	return errors.As(err, &alert) && alert.Op == "remote error"
}
