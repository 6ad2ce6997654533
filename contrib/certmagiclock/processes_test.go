package certmagiclock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/tierlock/tierlock/contrib/certmagiclock"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// Two processes with a shared disk want certificates for the same names at the same time. CertMagic holds the lock of a name while it
// checks the storage and requests a certificate. Each certificate is therefore issued once.
func TestEachCertificateIsIssuedOnce(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		key := need.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
		const domains = 10
		disk := &certmagic.FileStorage{Path: t.TempDir()}
		authority := &issuer{key: key, issued: make(map[string]int)}
		var wg sync.WaitGroup
		for range 2 {
			var config *certmagic.Config
			cache := certmagic.NewCache(certmagic.CacheOptions{
				GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
				Logger:           zap.NewNop(),
			})
			defer cache.Stop()
			config = certmagic.New(cache, certmagic.Config{
				Storage: certmagiclock.New(disk, process(t, srv), "/certmagic"),
				Issuers: []certmagic.Issuer{authority},
				Logger:  zap.NewNop(),
			})
			for i := range domains {
				wg.Go(func() {
					locktest.WantErr(t, "ObtainCertAsync", config.ObtainCertAsync(t.Context(), fmt.Sprintf("site%d.example.com", i)), nil)
				})
			}
		}
		wg.Wait()
		need.Equal(t, "names have a certificate", len(authority.issued), domains)
		for name, n := range authority.issued {
			need.Equal(t, name+": issued", n, 1)
		}
	})
}

// An issuer is an authority that no client trusts. It counts the certificates that it issues.
type issuer struct {
	key    *ecdsa.PrivateKey
	mu     sync.Mutex // guards the field below
	issued map[string]int
}

func (i *issuer) IssuerKey() string { return "nobody" }

func (i *issuer) Issue(_ context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	i.mu.Lock()
	i.issued[request.DNSNames[0]]++
	i.mu.Unlock()
	time.Sleep(time.Second) // in this virtual second, the other process gets as far as it can
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "nobody"},
		DNSNames:     request.DNSNames,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, i.key)
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, err
}
