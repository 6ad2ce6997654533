package command

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// If a connection fails, the error names the flag that may help, even if the client returns only a text.
func TestAdviceNamesFlags(t *testing.T) {
	plain, secure := httptest.NewServer(nil), httptest.NewUnstartedServer(nil)
	secure.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	secure.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	known, named := x509.NewCertPool(), &x509.Certificate{DNSNames: []string{"localhost"}}
	known.AddCert(secure.Certificate())
	refusal := func(server *httptest.Server, config *tls.Config) string {
		conn, err := tls.Dial("tcp", server.Listener.Addr().String(), config)
		if err == nil {
			defer conn.Close()
			_, err = conn.Read(make([]byte, 1)) // from TLS 1.3 on, the server checks the certificate after the handshake
		}
		need.Must(t, "there is a connection", err != nil)
		return err.Error()
	}
	for _, c := range []struct {
		tls        TLS
		text, want string
	}{
		{TLS{on: true}, refusal(secure, nil), "-tls-ca"},
		{TLS{}, refusal(secure, nil), "-tls-ca"}, // a URL such as rediss:// asks for TLS
		{TLS{on: true}, refusal(secure, &tls.Config{RootCAs: known, ServerName: "other.test"}), "-tls-server-name"},
		{TLS{on: true}, refusal(secure, &tls.Config{RootCAs: known}), "-tls-cert"},
		{TLS{on: true}, x509.HostnameError{Certificate: named, Host: "127.0.0.1"}.Error(), "-tls-server-name"},
		{TLS{on: true}, refusal(plain, nil), "no -tls flag"},
		{TLS{}, "error reading server preface: EOF", "-tls"},
	} {
		text := errors.New("rpc error: " + c.text)
		err := c.tls.Advise(text)
		if advice, ok := strings.CutPrefix(err.Error(), text.Error()+"; "); !ok || !strings.Contains(advice, c.want) || !errors.Is(err, text) {
			t.Errorf("got %q, want advice with %q", err, c.want)
		}
	}
	for _, config := range []TLS{{}, {on: true}} {
		err := errors.New("connection refused")
		need.Equal(t, "advice", config.Advise(err).Error(), err.Error())
	}
}
