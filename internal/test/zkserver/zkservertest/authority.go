package zkservertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/zkserver"
)

// An Authority issues certificates for tests, valid from an hour ago until a day from now.
type Authority struct {
	// File is the path of the authority's certificate in PEM. A server or a program needs it to trust the authority.
	File string
	// Pool contains the authority's certificate. A client needs it to trust the authority.
	Pool *x509.CertPool

	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// A Certificate is a certificate with its private key.
type Certificate struct {
	tls.Certificate
	File string // path of a file with the key and the certificate, in PEM
}

// NewAuthority returns an authority that no program trusts yet.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{tb: tb}
	own := a.issue(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "test authority"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, 24*time.Hour)
	a.cert, a.key = own.Leaf, own.PrivateKey.(*ecdsa.PrivateKey)
	a.Pool = x509.NewCertPool()
	a.Pool.AddCert(a.cert)
	a.File = own.File
	return a
}

// Issue returns a certificate for hosts, which are names or addresses. The first one is the common name. Clients and servers can use the
// certificate.
func (a *Authority) Issue(hosts ...string) Certificate {
	a.tb.Helper()
	return a.IssueFor(24*time.Hour, hosts...)
}

// IssueFor is like [Authority.Issue], for a certificate that expires after life.
func (a *Authority) IssueFor(life time.Duration, hosts ...string) Certificate {
	a.tb.Helper()
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: hosts[0]},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.issue(template, life)
}

// TLS returns the configuration of a server. The server shows a certificate for hosts, and trusts clients with certificates of the
// authority.
func (a *Authority) TLS(hosts ...string) *zkserver.TLS {
	a.tb.Helper()
	return &zkserver.TLS{KeyStore: a.Issue(hosts...).File, TrustStore: a.File}
}

// The method issue signs a certificate with the key of the authority. The authority's own certificate is signed with its own key.
func (a *Authority) issue(template *x509.Certificate, life time.Duration) Certificate {
	a.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.check(err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	a.check(err)
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(life)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	a.check(err)
	leaf, err := x509.ParseCertificate(der)
	a.check(err)
	return Certificate{
		Certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf},
		File:        a.write(der, key),
	}
}

// The method write writes a certificate and its key into one file. The file of the authority contains only the certificate, because its
// readers only need to trust it.
func (a *Authority) write(der []byte, key *ecdsa.PrivateKey) (file string) {
	a.tb.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if a.key != nil {
		private, err := x509.MarshalPKCS8PrivateKey(key)
		a.check(err)
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	}
	file = filepath.Join(a.tb.TempDir(), "store.pem")
	a.check(os.WriteFile(file, text, 0o600))
	return file
}

func (a *Authority) check(err error) {
	a.tb.Helper()
	if err != nil {
		a.tb.Fatal(err)
	}
}
