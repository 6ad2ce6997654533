package zknode_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// Close returns in time, whatever call is under way. At the end, the bubble fails the test if a call has left a goroutine. A call over a
// connection of the program may outlast Close, until that connection ends.
func TestCloseIsBoundedWhateverIsGoingOn(t *testing.T) {
	attached := func(t *testing.T, s *zktest.Server) process { p, _ := attach(t, s); return p }
	for how, begin := range map[string]func(*testing.T, *zktest.Server) process{
		"dialed":   func(t *testing.T, s *zktest.Server) process { return start(t, s) },
		"attached": attached,
	} {
		bound := map[string]time.Duration{"dialed": 3 * time.Second, "attached": 2 * time.Second}[how] // the library may take 4 s
		t.Run(how, func(t *testing.T) {
			each(t, map[string]func(s *zktest.Server, p process){
				"nothing":      func(*zktest.Server, process) {},
				"mute server":  func(s *zktest.Server, _ process) { s.Freeze() },
				"no server":    func(s *zktest.Server, _ process) { down(s) },
				"expired":      func(s *zktest.Server, p process) { s.Expire(p.session) },
				"reconnecting": func(s *zktest.Server, p process) { s.Freeze(); s.Cut(p.session); time.Sleep(beat / 2) },
				"muted to the client": func(s *zktest.Server, p process) {
					s.Mute(p.session, zktest.Reply)
					time.Sleep(time.Second)
				},
			}, func(t *testing.T, s *zktest.Server, trouble func(*zktest.Server, process)) {
				p := begin(t, s)
				p.acquire(t)
				waiter := p.queue(t.Context())
				trouble(s, p)
				late := p.queue(t.Context())
				bound := bound
				if how == "dialed" && p.Err() != nil { // no server is there that could close the session
					bound = 10 * time.Millisecond
				}
				begun := time.Now()
				wantErr(t, "Close", p.Close(), nil)
				wantWithin(t, bound, "Close", begun)
				wantErr(t, "waiter", waiter.failed(t), second.ErrClosed)
				wantErr(t, "late waiter", late.failed(t), second.ErrClosed)
			})
		})
	}
}

func TestFailedDialLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		ctx := within(t, time.Minute)
		meet(s, is("setAuth", zktest.Request), zktest.Error(zk.ErrAuthFailed))
		begun := time.Now()
		_, err := zknode.Dial(ctx, addr, zknode.WithDialContext(s.DialContext), zknode.WithAuth("digest", []byte("u:p")))
		wantErr(t, "Dial", err, zk.ErrAuthFailed)
		wantMention(t, err, "auth digest")
		wantWithin(t, 2*time.Second, "Dial", begun)
		synctest.Wait()
		need.Empty(t, "sessions left", s.Sessions())
	})
}
