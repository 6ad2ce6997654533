package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/clock"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/memlock"
	"github.com/tierlock/tierlock/tier"
)

// A scene has two hosts with the same store. a and b are Go programs on the first host, and far is one on the second host.
type scene struct {
	*testing.T
	server    *memlock.Server
	one, two  *host
	a, b, far *program
}

// A program is a Go program with its registry.
type program struct {
	*process
	*tier.Registry
}

func (h *host) program(t *testing.T, label string) *program {
	p := h.process(label)
	need.OK(t, p.Ready(t.Context()))
	r := tier.New(p.Tier)
	t.Cleanup(func() { r.Close() })
	return &program{p, r}
}

// onTwoHosts runs a test in virtual time.
func onTwoHosts(t *testing.T, test func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := &scene{T: t, server: server, one: newHost(t, server, nil), two: newHost(t, server, nil)}
		s.a, s.b, s.far = s.one.program(t, "a"), s.one.program(t, "b"), s.two.program(t, "far")
		test(s)
	})
}

const report = "/jobs/report"

func (s *scene) acquire(p *program) *tier.Hold {
	s.Helper()
	return need.Get(p.Mutex(report).Acquire(s.Context()))(s.T)
}

// A grant is a hold, with the time at which it was acquired, and what the hold before it said then.
type grant struct {
	*tier.Hold
	at     time.Time
	before error
}

// The method queue begins to acquire the lock, and waits until the process is in the queue.
func (s *scene) queue(p *program, before *tier.Hold) <-chan grant {
	next := make(chan grant, 1)
	go func() {
		hold, err := p.Mutex(report).Acquire(s.Context())
		if err == nil {
			next <- grant{hold, time.Now(), before.Err()}
		}
	}()
	synctest.Wait()
	time.Sleep(10 * time.Millisecond)
	return next
}

// After a clean release the lock stays on the host, with its token. After any other end of a hold, the next client of the host has a higher
// token, because a write of the former holder may still be under way.
func TestTokenGrowsUnlessAHoldIsReleasedCleanly(t *testing.T) {
	for name, test := range map[string]struct {
		end   func(s *scene, h *tier.Hold)
		grows bool
	}{
		"release":           {func(s *scene, h *tier.Hold) { need.OK(s, h.Release()) }, false},
		"unsettled release": {func(s *scene, h *tier.Hold) { need.OK(s, h.ReleaseUnsettled()) }, true},
		"end of the client": {func(s *scene, _ *tier.Hold) { s.a.Registry.Close() }, true},
		"client that does not renew": {func(s *scene, h *tier.Hold) {
			s.Cleanup(s.a.cut())
			<-h.Lost()
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			onTwoHosts(t, func(s *scene) {
				hold := s.acquire(s.a)
				next := s.queue(s.b, hold)
				test.end(s, hold)
				later := <-next
				need.Equal(t, fmt.Sprintf("token %d after %d grows", later.Token(), hold.Token()), later.Token() > hold.Token(), test.grows)
				need.OK(t, later.Release())
			})
		})
	}
}

// A client that ends frees its lock at once, and not only when a lease ends.
func TestNextClientOfTheHostFollowsADeadOneAtOnce(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		next := s.queue(s.b, s.acquire(s.a))
		died := time.Now()
		s.a.Registry.Close()
		after := <-next
		need.Between(t, "after the death", after.at.Sub(died), 0, 10*time.Millisecond)
		need.OK(t, after.Release())
	})
}

// After the eviction the agent keeps its locks for one lease. A client that had the lock before, but could not count on it yet, would count
// on it for longer.
func TestNoHoldBeginsAfterTheEviction(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		id := s.rawHold(report)
		conn := need.Get(s.one.dial(s.Context()))(t)
		defer conn.Close()
		say(t, conn, "POST /v1/hold?path="+report)
		time.Sleep(time.Second)
		heal := s.server.CutOff(s.one.locks)
		for s.one.hold(id).valid() {
			s.ask(http.MethodPost, "/v1/renew?id="+id, "")
			time.Sleep(lease / 30)
		}
		s.ask(http.MethodPost, "/v1/release?id="+id, "")
		synctest.Wait()
		need.Equal(t, "holds that are not promised yet", len(s.one.ids()), 1)
		var ending sync.WaitGroup
		ending.Go(func() { s.one.agent.Shutdown(ended(s)) })
		synctest.Wait()
		heal()
		await(t, bufio.NewScanner(conn), "503 Service Unavailable")
		ending.Wait()
	})
}

// Each of these faults ends the hold of a client. The client learns of it before any other process gets the lock, on this host or on
// another one.
func TestHoldIsLostBeforeAnotherProcessGetsTheLock(t *testing.T) {
	for name, fault := range map[string]func(s *scene, h *tier.Hold){
		"the client is cut off":  func(s *scene, _ *tier.Hold) { s.Cleanup(s.a.cut()) },
		"the agent has no store": func(s *scene, _ *tier.Hold) { s.Cleanup(s.server.CutOff(s.one.locks)) },
		"the agent is shut down": func(s *scene, _ *tier.Hold) {
			var ending sync.WaitGroup
			ending.Go(func() { s.one.agent.Shutdown(ended(s)) })
			s.Cleanup(ending.Wait)
		},
		"the client's machine sleeps": func(_ *scene, h *tier.Hold) { clockOf(h).Suspend(lease) },
		"the machine of the agent sleeps": func(s *scene, h *tier.Hold) {
			agents := s.one.hold(s.one.ids()[0])
			for _, c := range []*clock.Clock{clockOf(h), s.one.agent.clock, clockOf(agents.held().(*tier.Hold))} {
				c.Suspend(lease)
			}
		},
		"the agent stands still": func(s *scene, _ *tier.Hold) {
			for _, heal := range []func(){s.a.cut(), s.b.cut(), s.server.CutOff(s.one.locks)} {
				s.Cleanup(heal)
			}
		},
		"the agent dies": func(s *scene, _ *tier.Hold) {
			s.server.CutOff(s.one.locks) // it says no goodbye to the store
			s.one.agent.server.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onTwoHosts(t, func(s *scene) {
				hold := s.acquire(s.a)
				time.Sleep(3 * lease)
				need.OK(t, hold.Err())
				here, there := s.queue(s.b, hold), s.queue(s.far, hold)
				fault(s, hold)
				var next grant
				select {
				case next = <-here:
				case next = <-there:
				}
				need.WantErr(t, "the hold, when another process got the lock", next.before, tier.ErrLost)
				<-hold.Lost()
				need.That(t, "the token has not grown", next.Token() > hold.Token())
				next.Release()
			})
		})
	}
}

func clockOf(h *tier.Hold) *clock.Clock {
	g, _ := tier.GuardOf(h)
	return g.Grants[0].(*queue.Contender).Clock()
}

// ended returns a context that has ended.
func ended(s *scene) context.Context {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	return ctx
}

// A holder that listens learns that another client of the host waits, since no other store tells it.
func TestHolderLearnsThatAnotherClientOfTheHostWaits(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		hold := s.acquire(s.a)
		contended := hold.Contended()
		time.Sleep(time.Second)
		need.That(t, "contended although no other client waits", !need.Closed(contended))
		next := s.queue(s.b, hold)
		need.That(t, "not contended although another client waits", need.Closed(contended))
		need.OK(t, hold.Release())
		need.OK(t, (<-next).Release())
	})
}

// A client can wait before the holder has begun to hold. The holder learns of that client, too.
func TestHolderLearnsOfAClientThatWaitedBefore(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		first := s.acquire(s.a)
		second := s.queue(s.b, first)
		third := s.queue(s.one.program(s.T, "c"), first)
		need.OK(t, first.Release())
		hold := <-second
		contended := hold.Contended()
		synctest.Wait()
		need.That(t, "not contended although another client waits", need.Closed(contended))
		need.OK(t, hold.Release())
		need.OK(t, (<-third).Release())
	})
}

// If the agent is stopped, it cannot end the hold of a client. Therefore the client counts on its hold only until one margin before the
// agent's own lease ends, also while the agent does not reach the store.
func TestHoldOfAClientEndsOneMarginBeforeThatOfTheAgent(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		hold := s.acquire(s.a)
		s.one.agent.mu.Lock()
		host := s.one.agent.holds[s.one.onlyID()]
		s.one.agent.mu.Unlock()
		s.Cleanup(s.server.CutOff(s.one.locks))
		for hold.Err() == nil {
			end, agentsEnd := hold.ValidUntil(), host.ends()[0]
			need.Must(t, fmt.Sprintf("the client counts on its hold until %v, and the agent until %v", end, agentsEnd),
				!end.After(agentsEnd.Add(-s.one.agent.margin())))
			time.Sleep(lease / 100)
		}
		hold.Release()
	})
}

// onlyID returns the id of the only hold. The caller has locked the mutex of the agent.
func (h *host) onlyID() string {
	for id := range h.agent.holds {
		return id
	}
	return ""
}

// While another host waits, a host hands the lock off among its clients for one budget, and not for as long as they want it.
func TestBusyHostGivesTheLockToAnotherHost(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		var turns atomic.Int64
		ctx, stop := context.WithCancel(s.Context())
		var busy sync.WaitGroup
		for _, p := range []*program{s.a, s.b} {
			for range 3 {
				busy.Go(func() {
					for p.Mutex(report).Do(ctx, func(context.Context) error { time.Sleep(time.Millisecond); return nil }) == nil {
						turns.Add(1)
					}
				})
			}
		}
		time.Sleep(100 * time.Millisecond)
		begun := time.Now()
		hold := s.acquire(s.far)
		need.Between(t, "the wait of another host", time.Since(begun), 0, 60*time.Millisecond)
		need.OK(t, hold.Release())
		stop()
		busy.Wait()
		need.That(t, "the host had no turns of its own", turns.Load() > 50)
	})
}

// A client that speaks on the connection of its hold would keep the server from noticing the end of the connection.
func TestHoldEndsWhenItsConnectionIsUsed(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		conn := need.Get(s.one.dial(s.Context()))(t)
		defer conn.Close()
		lines := bufio.NewScanner(conn)
		for _, waits := range []bool{false, true} {
			var hold *tier.Hold
			if waits {
				hold = s.acquire(s.a)
			}
			say(t, conn, "POST /v1/hold?path="+report)
			if !waits {
				await(t, lines, `"acquired"`)
			}
			synctest.Wait()
			need.Equal(t, "clients", s.one.left(place{report, false}), 1+map[bool]int{true: 1}[waits])
			go io.WriteString(conn, "G")
			time.Sleep(time.Second)
			synctest.Wait()
			need.Equal(t, "clients that are left", s.one.left(place{report, false}), map[bool]int{true: 1}[waits])
			if waits {
				need.OK(t, hold.Release())
			}
			conn = need.Get(s.one.dial(s.Context()))(t)
			defer conn.Close()
			lines = bufio.NewScanner(conn)
		}
	})
}

func say(t *testing.T, conn net.Conn, request string) {
	t.Helper()
	need.Get(io.WriteString(conn, request+" HTTP/1.1\r\nHost: agent\r\n\r\n"))(t)
}

func await(t *testing.T, lines *bufio.Scanner, text string) string {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return lines.Text()
		}
	}
	t.Fatalf("the stream ended without %s", text)
	return ""
}

// The requests of a table are refused with a status, a code, and a text that says what is wrong.
func TestWrongRequestsAreRefused(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		client := http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.one.dial(ctx) },
		}}
		defer client.CloseIdleConnections()
		hold := s.acquire(s.a)
		for request, want := range map[string]string{
			"POST /v1/hold":                          "400 invalid path is missing",
			"POST /v1/hold?path=/a&wait=soon":        "400 invalid want a duration",
			"POST /v1/hold?path=/a&wait=-1s":         "400 invalid want a duration",
			"POST /v1/hold?path=/a&wiat=1s":          "400 invalid unknown parameter",
			"POST /v1/hold?path=/a&wait=1s&wait=2s":  "400 invalid given 2 times",
			"POST /v1/hold?path=/a&mode=exclusive":   "400 invalid want read or write",
			"POST /v1/hold?path=/a&permits=2":        "400 invalid belong together",
			"POST /v1/hold?path=/a&permits=0&of=3":   "400 invalid positive number",
			"POST /v1/hold?path=/a&permits=4&of=3":   "409 too_many_permits gave 3",
			"POST /v1/hold?path=/a&listen=loss":      "400 invalid contended or revoke",
			"POST /v1/hold?path=/a&path=/b&wait=0":   "400 invalid one path",
			"POST /v1/hold?path=/forbidden":          "400 invalid no such path",
			"POST /v1/hold?path=/a&%zz=1":            "400 invalid",
			"POST /v1/hold?wait=0&path=" + report:    "409 locked " + report,
			"POST /v1/hold?wait=10ms&path=" + report: "409 wait_limit held on this host by process",
			"POST /v1/release":                       "400 invalid id is missing",
			"POST /v1/release?id=ABC":                "404 unknown_id",
			"POST /v1/release?id=ABC&unsettled=yes":  "400 invalid want 1",
			"POST /v1/listen?id=ABC":                 "400 invalid for is missing",
			"POST /v1/downgrade?id=ABC":              "404 unknown_id",
			"PUT /v1/value?id=ABC":                   "404 unknown_id",
			"GET /v1/value?path=/none":               "404 no_value",
			"GET /v1/value?path=/forbidden":          "400 invalid",
			"POST /v1/break?path=/a":                 "400 invalid token is missing",
			"POST /v1/break?path=/a&token=77":        "410 lost",
			"POST /v1/permits?path=/a":               "400 invalid of is missing",
			"GET /v1/hold?path=/a":                   "404 invalid docs/agent.md",
			"GET /":                                  "404 invalid docs/agent.md",
		} {
			method, target, _ := strings.Cut(request, " ")
			r := need.Get(http.NewRequestWithContext(s.Context(), method, "http://agent"+target, nil))(t)
			response := need.Get(client.Do(r))(t)
			text := need.Get(io.ReadAll(response.Body))(t)
			response.Body.Close()
			got := fmt.Sprintf("%d %s", response.StatusCode, text)
			for _, word := range strings.SplitN(want, " ", 3) {
				need.That(t, fmt.Sprintf("%s: %s, want %s", request, got, want), strings.Contains(got, word))
			}
		}
		need.OK(t, hold.Release())
	})
}

// A connection without the token is closed after the first answer: all users share the connections of TCP.
func TestConnectionWithoutTheTokenIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.NewServer(), nil, func(c *Config) { c.Secret = "a secret of many characters" })
		conn := need.Get(h.dial(t.Context()))(t)
		defer conn.Close()
		need.OK(t, conn.SetDeadline(time.Now().Add(time.Second)))
		say(t, conn, "GET /v1/status")
		answer := string(need.Get(io.ReadAll(conn))(t)) // ends with the connection
		need.Has(t, "the answer", answer, "403 Forbidden", "Connection: close")
	})
}

// A request can wait for hours.
func TestHeadersOfARequestUseNoMemoryWhileItWaits(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Long", strings.Repeat("a", maxHeader/2))
	New(need.Get(memlock.NewServer().Connect())(t), Config{Logger: slog.New(slog.DiscardHandler)}).serving(
		func(_ http.ResponseWriter, r *request) error {
			need.Equal(t, "headers", len(r.Header), 0)
			return nil
		}).ServeHTTP(httptest.NewRecorder(), r)
}

// A user with too many connections gets no new hold, but keeps the holds that it has. Other users are not affected.
func TestUserWithTooManyConnectionsRenewsAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 5
		h := newHost(t, memlock.NewServer(), nil, func(c *Config) { c.Clients = limit })
		h.uid.Store(1000)
		p := h.program(t, "a")
		hold := need.Get(p.Mutex(report).Acquire(t.Context()))(t)
		connect := func(n int) (refused int) {
			for range n {
				conn := need.Get(h.dial(t.Context()))(t)
				t.Cleanup(func() { conn.Close() })
				synctest.Wait()
				conn.SetReadDeadline(time.Now().Add(time.Millisecond))
				if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
					refused++
				}
			}
			return refused
		}
		need.Equal(t, "connections that are refused", connect(limit), 0)
		for range 8 {
			time.Sleep(lease / 3)
			need.OK(t, hold.Err())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Mutex("/other").Acquire(ctx)
		need.WantMention(t, err, "this user has more than 5 connections; raise -clients")
		need.OK(t, hold.Release())

		need.That(t, "more than twice the limit is accepted", connect(2*limit) > 0)
		h.uid.Store(1001)
		need.OK(t, need.Get(h.program(t, "b").Mutex("/other").Acquire(t.Context()))(t).Release())
	})
}

// A hold belongs to its process: no other process can release or renew it.
func TestHoldBelongsToItsProcess(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		hold := s.acquire(s.a)
		agent, id := s.one.agent, s.one.ids()[0]
		for name, handle := range map[string]func(*request) (any, error){
			"renew": agent.renew, "release": agent.release, "listen": agent.listen, "downgrade": agent.downgrade,
			"save": agent.save, "forget": agent.forget,
		} {
			post := need.Get(http.NewRequest(http.MethodPost, "/", strings.NewReader("")))(t)
			thief := &request{Request: post, peer: &peer{pid: 1, uid: 0}, query: map[string][]string{"id": {id}}}
			if name == "listen" {
				thief.query["for"] = []string{"revoke"}
			}
			_, err := handle(thief)
			need.Must(t, fmt.Sprintf("%s by another process has no error", name), err != nil)
			need.Equal(t, name+" by another process", describe(err).code, "forbidden")
		}
		need.OK(t, hold.Err())
		need.OK(t, hold.Release())
	})
}

// A client that sends a part of a request, and stays, keeps no other client from its lock, and gets none.
func TestPartOfARequestTakesNoLock(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		id := s.rawHold("/other")
		for _, part := range []string{
			"", "POST /v1/hold?path=" + report,
			"POST /v1/hold?path=" + report + " HTTP/1.1\r\nHost: agent\r\n",
			"POST /v1/hold?path=" + report + " HTTP/1.1\r\nHost: agent\r\nContent-Length: 1000000000\r\n\r\n",
			"POST /v1/hold?path=" + report + " HTTP/1.1\r\nHost: agent\r\nTransfer-Encoding: chunked\r\n\r\n40000000\r\na",
			"PUT /v1/value?id=" + id + " HTTP/1.1\r\nHost: agent\r\nContent-Length: 9\r\n\r\nabc",
			"POST /v1/renew?id=" + id + " HTTP/1.1\r\nHost: agent\r\nContent-Length: 1000000000\r\n\r\nabc",
		} {
			conn := need.Get(s.one.dial(s.Context()))(t)
			defer conn.Close()
			go io.Copy(io.Discard, conn)
			_, err := io.WriteString(conn, part)
			need.OK(t, err)
			synctest.Wait()
		}
		begun := time.Now()
		need.Equal(t, "clients at the lock", s.one.left(place{report, false}), 0)
		need.OK(t, s.acquire(s.a).Release())
		status, answer := s.ask(http.MethodPost, "/v1/release?id="+id, "")
		need.Equal(t, "status of the release: "+answer, status, http.StatusOK)
		need.Between(t, "the wait of the others", time.Since(begun), 0, 20*time.Millisecond)
	})
}

// A command line can have secrets.
func TestCommandLineIsShownToItsUserAndToOperatorsAlone(t *testing.T) {
	command := (&peer{pid: os.Getpid()}).command(&peer{})
	if command == "" {
		t.Skip("this system does not show command lines")
	}
	command = command[:min(len(command), 20)]
	onTwoHosts(t, func(s *scene) {
		for asker, shown := range map[int]bool{0: true, os.Getuid(): true, 77777: true, 77778: false, -1: false} {
			s.one.uid.Store(77777)
			hold := s.acquire(s.one.program(s.T, "holder"))
			s.one.uid.Store(int64(asker))
			_, who := s.ask(http.MethodGet, "/v1/who?path="+report, "")
			need.That(t, "who does not show the holder: "+who, strings.Contains(who, `"holds":true`))
			_, refusal := s.ask(http.MethodPost, "/v1/hold?wait=10ms&path="+report, "")
			need.WantMention(t, errors.New(refusal), "held on this host by process")
			for _, answer := range []string{who, refusal} {
				need.Equal(t, fmt.Sprintf("user %d sees the command: %s", asker, answer), strings.Contains(answer, command), shown)
			}
			s.one.uid.Store(77777)
			need.OK(t, hold.Release())
		}
	})
}

// A process can make the read of its command line block. No more than a few goroutines then wait for it.
func TestCommandLinesAreReadByAFewAtATime(t *testing.T) {
	for range cap(reads) {
		reads <- struct{}{}
		defer func() { <-reads }()
	}
	need.Equal(t, "command line", (&peer{pid: os.Getpid()}).command(&peer{}), "")
}

// In a user namespace, all users that are not mapped appear as the overflow user.
func TestOverflowUserIsNoOperator(t *testing.T) {
	need.That(t, "root is no operator", operates(0, overflow()))
	need.That(t, "the user of the agent is no operator", operates(1000, 1000))
	need.That(t, "the overflow user is an operator, because the agent runs as this user", !operates(overflow(), overflow()))
}

func (h *host) ids() (ids []string) {
	h.agent.mu.Lock()
	defer h.agent.mu.Unlock()
	for id := range h.agent.holds {
		ids = append(ids, id)
	}
	return ids
}

func TestAllowFileDecidesWhoMayUseWhat(t *testing.T) {
	rules := need.Get(ReadRules(strings.NewReader("# comment\n\nuid:1000 /jobs/* /deep/**\ngid:33 /web/**\nany /public/*\n")))(t)
	a := &Agent{config: Config{Allow: rules, Check: func(string) error { return nil }}}
	for _, test := range []struct {
		uid, gid int
		path     string
		allowed  bool
	}{
		{1000, 1, "/jobs/a", true}, {1000, 1, "/jobs/a/b", false}, {1000, 1, "/deep/a/b", true}, {1000, 1, "/deep", false},
		{1000, 1, "/web/../deep/a", false}, {1000, 1, "/deep/../web/a", true}, {1000, 1, "/deep//a", true}, {1000, 1, "deep/a", false},
		{1001, 33, "/web/a/b", true}, {1001, 1, "/web/a", false}, {1001, 1, "/public/a", true}, {1001, 1, "/jobs/a", false},
		{0, 0, "/jobs/a/b", true},
	} {
		err := a.permit(&peer{pid: 7, uid: test.uid, gid: test.gid}, test.path)
		need.Equal(t, fmt.Sprintf("%+v is allowed", test), err == nil, test.allowed)
	}
	for _, wrong := range []string{"uid:me /a", "uid:1", "user /a", "uid:-1 /a", "any /[", "gid: /a"} {
		_, err := ReadRules(strings.NewReader("any /a\n" + wrong))
		need.WantMention(t, err, "line 2")
	}
}

// Whatever a client sends, the agent still serves others.
func FuzzAgentSurvivesAnyBytes(f *testing.F) {
	for _, seed := range []string{
		"POST /v1/hold?path=/a HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /v1/hold?path=/a&listen=revoke HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde",
		"PUT /v1/value?id=a&turn=9 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
		"GET /v1/who?path=%00 HTTP/1.0\r\n\r\n",
		"POST /v1/renew?id=a&id=b HTTP/1.1\r\nHost: a\r\n\r\nPOST /v1/renew HTTP/1.1\r\nHost: a\r\n\r\n",
		"\x00\x01", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		onTwoHosts(t, func(s *scene) {
			conn := need.Get(s.one.dial(s.Context()))(t)
			go io.Copy(io.Discard, conn)
			conn.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = conn.Write(data) // the agent may close the connection before
			time.Sleep(time.Second)
			conn.Close()
			time.Sleep(2 * lease)
			need.OK(t, s.acquire(s.a).Release())
			need.Equal(t, "holds that are left", len(s.one.ids()), 0)
		})
	})
}
