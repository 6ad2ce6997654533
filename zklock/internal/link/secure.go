package link

import (
	"context"
	"crypto/tls"
	"net"
)

// secure puts TLS on top of a connection to the server, if the link is to have it. On an error
// the connection is closed.
func (l *dialed) secure(conn net.Conn, server string) (net.Conn, error) {
	cfg := l.link.config.TLS
	if cfg == nil {
		return conn, nil
	}
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(server) // it was checked that it is both
	}
	ctx, cancel := context.WithTimeout(l.link.ctx, l.handshakeTimeout())
	defer cancel()
	secured := tls.Client(conn, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, tlsError(server, err)
	}
	return secured, nil
}
