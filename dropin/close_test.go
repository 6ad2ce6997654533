package dropin_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/dropin"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// A handle in front of the gate, behind another one of the same connection, does not wait
// for what that one does next.
func TestHandlesAtTheGateEndWithTheConnection(t *testing.T) {
	for name, trouble := range map[string]func(*scene){
		"nothing": func(*scene) {},
		"no server": func(s *scene) {
			s.away()
			<-time.After(time.Second) // virtual
		},
		"a frozen server":                  func(s *scene) { s.srv.Freeze() },
		"a handshake with a frozen server": func(s *scene) { s.srv.Freeze(); s.srv.CutAll(); s.still() },
		"a lock that is lost": func(s *scene) {
			s.removed(s.children()[0])
			s.still()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				s := newScene(t, modelAddr, srv.DialTimeout)
				s.srv = srv
				owner, waiter := dropin.NewLock(s.conn, s.path, s.acl), dropin.NewLock(s.conn, s.path, s.acl)
				if err := owner.Lock(); err != nil {
					t.Fatal(err)
				}
				outcome := make(chan error, 1)
				go func() { outcome <- waiter.Lock() }()
				synctest.Wait()
				trouble(s)
				began := time.Now()
				closed := make(chan struct{})
				go func() {
					defer close(closed)
					s.conn.Close()
				}()
				select {
				case err := <-outcome:
					if !errors.Is(err, tier.ErrClosed) || !errors.Is(err, zk.ErrClosing) {
						t.Errorf("Lock: got %v, want ErrClosed and ErrClosing", err)
					}
				case <-time.After(time.Hour): // virtual
					t.Fatal("still waiting")
				}
				if took := time.Since(began); took > 100*time.Millisecond {
					t.Errorf("the handle waited for %v", took)
				}
				s.member().Refuse() // a connection that comes back sets its watches again, which is a data race of the library
				srv.CutAll()
				srv.Unfreeze()
				<-closed // a second Close waits for the first at a mutex, and time stands still
			})
		})
	}
}
