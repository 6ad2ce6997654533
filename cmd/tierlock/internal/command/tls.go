package command

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

// A TLS has the values of the TLS flags. The zero value means no TLS.
type TLS struct {
	on         bool
	ca         string
	cert, key  string
	serverName string
}

func (t *TLS) flags(flags *flag.FlagSet) {
	flags.BoolVar(&t.on, "tls", t.on, "connect with TLS; implied by the other -tls flags")
	flags.StringVar(&t.ca, "tls-ca", t.ca, "`file` with the certificates to trust, PEM (default: the system's)")
	flags.StringVar(&t.cert, "tls-cert", t.cert, "`file` with the certificate to present, PEM")
	flags.StringVar(&t.key, "tls-key", t.key, "`file` with the key of -tls-cert, PEM")
	flags.StringVar(&t.serverName, "tls-server-name", t.serverName,
		"`name` that the servers' certificates must have (default: the host's in the URL)")
}

const anotherName = "use a host name that is in the server's certificate, or pass the name in the certificate with -tls-server-name"

// The table tlsAdvice says which flag may help. It is searched by the text of an error, because some clients return only a text.
var tlsAdvice = []struct{ text, flag string }{
	{"certificate signed by unknown authority", "-tls-ca has to name the authority of the server's certificate"},
	{"certificate is valid for", anotherName},
	{"contain any IP SANs", anotherName},
	{"first record does not look like a TLS handshake", "this port may have no TLS: for it, use no -tls flag, and no URL with TLS"},
	{"remote error: tls: ", "the server may require a certificate that it trusts: use -tls-cert and -tls-key"},
}

// Advise adds to a connection error the name of the flag that may help. This also helps if a URL asks for TLS, and no flag is given.
func (t *TLS) Advise(err error) error {
	text := err.Error()
	for _, advice := range tlsAdvice {
		if strings.Contains(text, advice.text) {
			return fmt.Errorf("%w; %s", err, advice.flag)
		}
	}
	if *t == (TLS{}) && (strings.HasSuffix(text, "EOF") || strings.Contains(text, "EOF\"")) {
		return fmt.Errorf("%w; the server may require TLS: use -tls", err)
	}
	return err
}

// Config returns the TLS configuration. If TLS is not requested, it returns nil.
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
			return nil, fmt.Errorf("-tls-ca %s: the file has no certificate; want PEM", t.ca)
		}
	}
	if (t.cert == "") != (t.key == "") {
		return nil, errors.New("-tls-cert and -tls-key must be given together")
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
