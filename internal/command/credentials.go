package command

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"

	"github.com/tierlock/tierlock/zklock"
)

// auth reads the credentials, which never come from the command line: everybody can see that.
func (z *zooKeeper) auth() ([]zklock.Option, error) {
	text, source := os.Getenv("TIERLOCK_AUTH"), "TIERLOCK_AUTH"
	if z.authFile != "" {
		content, err := os.ReadFile(z.authFile)
		if err != nil {
			return nil, usageError("-auth-file: %w", err)
		}
		text, source = string(content), z.authFile
	}
	var opts []zklock.Option
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		scheme, credentials, ok := strings.Cut(line, ":")
		if !ok || scheme == "" { // not quoted: it may be a secret
			return nil, usageError("%s: line %d: want scheme:credentials, such as digest:user:password", source, i+1)
		}
		opts = append(opts, zklock.WithAuth(scheme, []byte(credentials)))
	}
	return opts, nil
}

// tlsConfig returns nil if TLS is not asked for.
func (z *zooKeeper) tlsConfig() (*tls.Config, error) {
	if !z.tls && z.ca == "" && z.cert == "" && z.key == "" && z.serverName == "" {
		return nil, nil
	}
	config := &tls.Config{ServerName: z.serverName}
	if z.ca != "" {
		pem, err := os.ReadFile(z.ca)
		if err != nil {
			return nil, usageError("-tls-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usageError("-tls-ca %s: no certificate in it; want PEM", z.ca)
		}
	}
	if (z.cert == "") != (z.key == "") {
		return nil, usageError("-tls-cert and -tls-key go together; one is missing")
	}
	if z.cert != "" {
		pair, err := tls.LoadX509KeyPair(z.cert, z.key)
		if err != nil {
			return nil, usageError("-tls-cert, -tls-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
