package link

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// What stands in the way of a connection is told with what to do about it.

// dialError names the server, which the cause may know by its address only. Dialers may do more
// than connect: a server whose ZooKeeper takes the start of TLS for a frame hangs up. If stale
// is not nil, the address was one of old, since the name could not be looked up.
func dialError(server string, err, stale error) error {
	if hungUp(err) {
		err = fmt.Errorf("the server hung up on the dialer; it may have no TLS on this port: %w", err)
	}
	if stale != nil {
		return fmt.Errorf("dial %s, at its last known address: %w; %w", server, err, stale)
	}
	return fmt.Errorf("dial %s: %w", server, err)
}

// tlsError says what may be wrong with the port, the names, or the certificates.
func tlsError(server string, err error) error {
	return fmt.Errorf("TLS handshake with %s: %s%w", server, tlsAdvice(err), err)
}

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

// handshakeError adds what may be behind the end of a connection before the answer.
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

// otherProtocol tells by the first bytes of an answer to the handshake what gave it, if
// that is not ZooKeeper.
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

// isAlert reports whether the other side of TLS said what it does not like.
func isAlert(err error) bool {
	var alert *net.OpError
	return errors.As(err, &alert) && alert.Op == "remote error"
}
