package command

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
)

// TLS is how to connect to servers that want it, as flags say. The zero value is without.
type TLS struct {
	on         bool
	ca         string
	cert, key  string
	serverName string
}

// Flags adds those for TLS; servers is the flag that names them.
func (t *TLS) Flags(flags *flag.FlagSet, servers string) {
	flags.BoolVar(&t.on, "tls", t.on, "connect with TLS; implied by the other -tls flags")
	flags.StringVar(&t.ca, "tls-ca", t.ca, "`file` with the certificates to trust, PEM (default: the system's)")
	flags.StringVar(&t.cert, "tls-cert", t.cert, "`file` with the certificate to present, PEM")
	flags.StringVar(&t.key, "tls-key", t.key, "`file` with the key of -tls-cert, PEM")
	flags.StringVar(&t.serverName, "tls-server-name", t.serverName,
		"`name` that the servers' certificates must have (default: the host's in "+servers+")")
}

// Config returns nil if TLS is not asked for.
func (t *TLS) Config() (*tls.Config, error) {
	if *t == (TLS{}) {
		return nil, nil
	}
	config := &tls.Config{ServerName: t.serverName}
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("-tls-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("-tls-ca %s: no certificate in it; want PEM", t.ca)
		}
	}
	if (t.cert == "") != (t.key == "") {
		return nil, errors.New("-tls-cert and -tls-key go together; one is missing")
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("-tls-cert, -tls-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
