//go:build unix

package certmagiclock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"math/big"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/tierlock/tierlock"
	certmagiclock "github.com/tierlock/tierlock/adapters/certmagic"
	"github.com/tierlock/tierlock/internal/witness"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

const (
	processes = 2
	domains   = 10
)

// Real processes share a disk and want certificates for the same names at the same time. CertMagic asks the
// issuer under the lock of the name, and looks in the storage first.
func TestEachCertificateIsIssuedOnce(t *testing.T) {
	server := zkservertest.Start(t, zkserver.Config{NoSync: true})
	w, disk := witness.Witness(t.TempDir()), t.TempDir()
	var fleet []*witness.Process
	for range processes {
		fleet = append(fleet, witness.Start(t, "server", "ZK_SERVERS="+server.Addr(), "WITNESS="+string(w), "DISK="+disk))
	}
	for _, p := range fleet {
		if err := p.Wait(); err != nil {
			t.Errorf("process %d: %v", p.Process.Pid, err)
		}
	}
	if c := w.Tally(t, "site"); c.Slots != domains || c.Twice != 0 {
		t.Errorf("%d certificates were issued, %d of them twice; want %d, none", c.Slots, c.Twice, domains)
	}
}

// obtain is what each of the processes does.
func obtain() int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	locks, err := tierlock.Dial(ctx, os.Getenv("ZK_SERVERS"))
	if err != nil {
		log.Print(err)
		return 1
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Print(err)
		return 1
	}
	disk := &certmagic.FileStorage{Path: os.Getenv("DISK")}
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	config = certmagic.New(cache, certmagic.Config{
		Storage: certmagiclock.New(disk, locks, "/certmagic"),
		Issuers: []certmagic.Issuer{issuer{witness.Witness(os.Getenv("WITNESS")), key}},
		Logger:  zap.NewNop(),
	})
	errs := make([]error, domains)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = config.ObtainCertAsync(ctx, fmt.Sprintf("site%d.example.com", i)) })
	}
	wg.Wait()
	cache.Stop()
	if err := errors.Join(append(errs, locks.Shutdown(ctx), goleak.Find())...); err != nil {
		log.Print(err)
		return 1
	}
	return 0
}

// An issuer is an authority that nobody trusts. It writes down what it issues.
type issuer struct {
	witness witness.Witness
	key     *ecdsa.PrivateKey
}

func (i issuer) IssuerKey() string { return "nobody" }

func (i issuer) Issue(_ context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "nobody"},
		DNSNames:     request.DNSNames,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(90 * 24 * time.Hour),
	}
	var der []byte
	var err error
	issue := func() {
		time.Sleep(20 * time.Millisecond) // the other process comes, if it can
		der, err = x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, i.key)
	}
	if err := errors.Join(i.witness.Work(request.DNSNames[0], 0, issue), err); err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}
