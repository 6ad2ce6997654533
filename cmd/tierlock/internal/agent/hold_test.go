package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// ask sends a request on a connection of its own, and returns the status and the body of the answer. After a second it gives up, and
// returns 0.
func (s *scene) ask(method, target, body string) (status int, answer string) {
	s.Helper()
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return s.one.dial(ctx) },
	}}
	r := need.Get(http.NewRequestWithContext(s.Context(), method, "http://agent"+target, strings.NewReader(body)))(s.T)
	response, err := client.Do(r)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	return response.StatusCode, string(need.Get(io.ReadAll(response.Body))(s.T))
}

// rawHold begins a hold without the Go client, and returns its id. The hold is renewed only by the test.
func (s *scene) rawHold(path string) (id string) {
	s.Helper()
	conn := need.Get(s.one.dial(s.Context()))(s.T)
	s.Cleanup(func() { conn.Close() })
	say(s.T, conn, "POST /v1/hold?path="+path)
	lines := bufio.NewScanner(conn)
	var e event
	need.OK(s, json.Unmarshal([]byte(await(s.T, lines, `"acquired"`)), &e))
	go io.Copy(io.Discard, conn)
	return e.ID
}

func (h *host) hold(id string) *hold {
	h.agent.mu.Lock()
	defer h.agent.mu.Unlock()
	return h.agent.holds[id]
}

// If a client sends a write again because the first try was not answered, the answer must be about the write, and not about the try.
func TestWriteThatIsTriedAgainIsNotReportedAsDoneBeforeItIs(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		id := s.rawHold(report)
		heal := s.server.CutOff(s.one.locks)
		for range 2 {
			status, _ := s.ask(http.MethodPut, "/v1/value?turn=1&id="+id, "data")
			need.That(t, fmt.Sprint("status ", status, " although the store was not reached"), status != http.StatusOK)
		}
		heal()
		status, answer := s.ask(http.MethodPut, "/v1/value?turn=1&id="+id, "data")
		need.Equal(t, "status of the last try: "+answer, status, http.StatusOK)
		_, data := s.ask(http.MethodGet, "/v1/value?path="+report, "")
		need.Equal(t, "value", data, "data")
		status, _ = s.ask(http.MethodPut, "/v1/value?turn=2&id="+id, "later")
		need.Equal(t, "status", status, http.StatusOK)
		status, _ = s.ask(http.MethodPut, "/v1/value?turn=1&id="+id, "data")
		need.Equal(t, "status of a late try", status, http.StatusOK)
		_, data = s.ask(http.MethodGet, "/v1/value?path="+report, "")
		need.Equal(t, "value", data, "later")
	})
}

// A goroutine of the agent can be slow between the arrival of a renewal and its effect. Another renewal, or the end of the hold, can then
// come first.
func TestLateRenewalNeitherShortensNorRevivesAHold(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		h := s.one.hold(s.rawHold(report))
		early := s.one.agent.clock.Now()
		time.Sleep(time.Second)
		late := s.one.agent.clock.Now()
		need.That(t, "not renewed", h.renew(late) && h.renew(early))
		need.Equal(t, "end of the hold", h.expires(), late+lease)
		time.Sleep(lease)
		need.That(t, "renewed although the hold has ended", !h.renew(s.one.agent.clock.Now()))
	})
}

// If the wall clock was set back by as much as the machine slept, the agent learns of the sleep only when it asks the system. A client on
// Linux always knows. The agent must not end a hold before the client does.
func TestHoldLastsForItsLeaseAfterASleepThatAStepHides(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		c := s.one.agent.clock
		sleep := func() {
			c.Suspend(lease / 2)
			c.Step(-lease / 2)
		}
		sleep()
		first := s.one.hold(s.rawHold(report))
		sleep()
		second := s.one.hold(s.rawHold("/other"))
		c.Ask()
		need.Equal(t, "the rest of the first hold, and of the second", [2]time.Duration{first.expires() - c.Now(), second.expires() - c.Now()},
			[2]time.Duration{lease / 2, lease})
		sleep()
		status, answer := s.ask(http.MethodPost, "/v1/renew?id="+second.id, "")
		need.Equal(t, "status of the renewal: "+answer, status, http.StatusOK)
		need.Equal(t, "the rest after the renewal", second.expires()-c.Now(), lease)
	})
}

// A renewal that arrives after the hold has begun, and does not name it, does not extend it. The client does not know the hold as long as
// it has not read the first line of the stream, so it cannot name it.
func TestRenewalThatDoesNotNameAHoldDoesNotCountForIt(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		other := need.Get(s.far.Mutex(report).Acquire(s.Context()))(t)
		got := make(chan *tier.Hold, 1)
		go func() {
			if hold, err := s.a.Mutex(report).Acquire(s.Context()); err == nil {
				got <- hold
			}
		}()
		time.Sleep(100 * time.Millisecond)
		read := s.a.holdBack()
		need.OK(t, other.Release())
		time.Sleep(100 * time.Millisecond)
		need.Equal(t, "holds of the agent", len(s.one.ids()), 1)
		time.Sleep(lease / 2) // the client renews its lease meanwhile
		read()
		time.Sleep(10 * time.Millisecond)
		s.Cleanup(s.a.cut())
		hold := <-got
		next := need.Get(s.b.Mutex(report).Acquire(s.Context()))(t)
		need.WantErr(t, "the hold, when another process got the lock", hold.Err(), tier.ErrLost)
		need.OK(t, next.Release())
	})
}

// The agent cannot tell a client that does not read its stream that the hold has ended. It must not end the hold before the client's clock
// does.
func TestClientThatDoesNotReadItsStreamKeepsItsHoldAsLongAsItCountsOnIt(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		conn := need.Get(s.one.dial(s.Context()))(t)
		defer conn.Close()
		say(t, conn, "POST /v1/hold?path="+report)
		lines := bufio.NewScanner(conn)
		await(t, lines, `"acquired"`)
		id := s.one.ids()[0]
		next := make(chan time.Time, 1)
		go func() {
			hold := s.acquire(s.b)
			next <- time.Now()
			hold.Release()
		}()
		var renewed time.Time
		for end := false; !end; time.Sleep(lease / 5) {
			sent := time.Now()
			status, answer := s.ask(http.MethodPost, "/v1/renew?id="+id, "")
			if end = status != http.StatusOK || strings.Contains(answer, "ended"); !end {
				renewed = sent
			}
		}
		need.Between(t, "from the last renewal until another client has the lock", (<-next).Sub(renewed), lease, lease+10*time.Millisecond)
	})
}

// A path that a request names twice would have two seats.
func TestNothingIsLeftOfABundleThatNamesAPathTwice(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		s.ask(http.MethodPost, "/v1/hold?path=/a&path=/a", "")
		time.Sleep(time.Second)
		need.Equal(t, "places", len(s.one.agent.places), 0)
	})
}

// The last client that releases is answered before the agent ends.
func TestReleaseIsAnsweredDuringAShutdown(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		hold := s.acquire(s.a)
		id := s.rawHold("/other")
		var over sync.WaitGroup
		over.Go(func() { need.OK(t, s.one.agent.Shutdown(s.Context())) })
		time.Sleep(100 * time.Millisecond)
		need.OK(t, hold.Release())
		status, _ := s.ask(http.MethodPost, "/v1/release?id="+id, "")
		need.Equal(t, "status of the last release", status, http.StatusOK)
		over.Wait()
	})
}

// A client with many holds can renew them in one request or in several, as the Go client does.
func TestAllHoldsOfAProcessAreRenewed(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		const many = 500
		for i := range many {
			need.Get(s.a.Mutex(fmt.Sprint("/many/", i)).Acquire(s.Context()))(t)
		}
		time.Sleep(3 * lease)
		ids := s.one.ids()
		need.Equal(t, "holds that the Go client has renewed", len(ids), many)
		status, answer := s.ask(http.MethodPost, "/v1/renew?id="+strings.Join(ids, "&id="), "")
		need.Equal(t, "status: "+answer, status, http.StatusOK)
		for _, id := range ids {
			need.Equal(t, "rest of the hold", s.one.hold(id).expires()-s.one.agent.clock.Now(), lease)
		}
	})
}

// What is too long for a request is refused, and other requests are served.
func TestLongRequestsAreRefused(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		id := s.rawHold(report)
		for target, want := range map[string]int{
			"/v1/renew?id=" + strings.Repeat("NONE&id=", maxIDs-1) + id:          http.StatusOK,
			"/v1/renew?id=" + strings.Repeat("NONE&id=", maxIDs) + id:            http.StatusBadRequest,
			"/v1/hold?path=/0" + strings.Repeat("&path=/0", maxPaths):            http.StatusBadRequest,
			"/v1/hold?path=/" + strings.Repeat("a", 2*maxHeader):                 http.StatusRequestHeaderFieldsTooLarge,
			"/v1/release?id=" + id + "&unsettled=" + strings.Repeat("1", 10_000): http.StatusBadRequest,
		} {
			status, answer := s.ask(http.MethodPost, target, "")
			need.Equal(t, "status of "+target[:min(len(target), 40)]+": "+answer, status, want)
		}
		status, answer := s.ask(http.MethodPost, "/v1/release?id="+id, "")
		need.Equal(t, "status of the release: "+answer, status, http.StatusOK)
	})
}
