package agent

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/netutil"

	"github.com/tierlock/tierlock/contrib/tierprom"
	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/memlock"
)

// rawConn begins a hold without the Go client, and returns its id and its connection.
func (s *scene) rawConn(path string) (id string, conn net.Conn) {
	s.Helper()
	conn = need.Get(s.one.dial(s.Context()))(s.T)
	s.Cleanup(func() { conn.Close() })
	say(s.T, conn, "POST /v1/hold?path="+path)
	await(s.T, bufio.NewScanner(conn), `"acquired"`)
	go io.Copy(io.Discard, conn)
	return s.one.ids()[0], conn
}

// page returns what a scraper reads.
func (h *host) page(t *testing.T) string {
	t.Helper()
	answer := httptest.NewRecorder()
	h.agent.MetricsServer(need.Get(tierprom.New())(t)).Handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	need.Equal(t, "status", answer.Code, http.StatusOK)
	return answer.Body.String()
}

// Each hold is counted once, by the reason for its end.
func TestEndOfAHoldIsCountedOnceByItsReason(t *testing.T) {
	for why, end := range map[reason]func(s *scene, id string, conn net.Conn){
		released:  func(s *scene, id string, _ net.Conn) { s.ask(http.MethodPost, "/v1/release?id="+id, "") },
		unsettled: func(s *scene, id string, _ net.Conn) { s.ask(http.MethodPost, "/v1/release?unsettled=1&id="+id, "") },
		hungUp:    func(_ *scene, _ string, conn net.Conn) { conn.Close() },
		notRenewed: func(_ *scene, _ string, conn net.Conn) {
			time.Sleep(lease)
			conn.Close()
		},
		gone: func(s *scene, id string, conn net.Conn) {
			s.server.CutOff(s.one.locks)
			for until := time.Now().Add(20 * lease); time.Now().Before(until) && s.one.hold(id) != nil; time.Sleep(lease / 10) {
				s.ask(http.MethodPost, "/v1/renew?id="+id, "") // the client does what it can
			}
			conn.Close()
		},
	} {
		t.Run(why.String(), func(t *testing.T) {
			onTwoHosts(t, func(s *scene) {
				id, conn := s.rawConn(report)
				need.Has(t, "the page during the hold", s.one.page(t), "\ntierlock_agent_holds 1\n", "\ntierlock_agent_connections ")
				end(s, id, conn)
				time.Sleep(time.Second)
				s.ask(http.MethodPost, "/v1/release?id="+id, "") // too late
				page := s.one.page(t)
				for one := range reasons {
					n := map[bool]int{true: 1}[one == why]
					need.Has(t, "the page", page, fmt.Sprintf("\ntierlock_agent_ended_holds_total{reason=%q} %d\n", one, n))
				}
				need.Has(t, "the page", page, "\ntierlock_agent_holds 0\n", "\ntierlock_agent_waiting_clients 0\n")
			})
		})
	}
}

// A hold that the agent has declared lost at its end is counted as lost, whatever its client does then.
func TestHoldsThatAnAgentEndsAreCountedAsLost(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		_, conn := s.rawConn(report)
		go s.one.agent.Shutdown(ended(s))
		time.Sleep(lease / 10)
		conn.Close()
		time.Sleep(lease)
		need.Equal(t, "lost holds", s.one.agent.ends[gone].Load(), 1)
		need.Equal(t, "closed connections", s.one.agent.ends[hungUp].Load(), 0)
	})
}

func TestClientsThatWaitAreCounted(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		hold := s.acquire(s.a)
		next := s.queue(s.b, hold)
		need.Has(t, "the page", s.one.page(t), "\ntierlock_agent_waiting_clients 1\n", "\ntierlock_agent_connections_limit 1000\n")
		need.OK(t, hold.Release())
		need.OK(t, (<-next).Release())
		need.Has(t, "the page", s.one.page(t), "\ntierlock_agent_waiting_clients 0\n")
	})
}

// Clients that fail in a loop cannot fill the log. The first ones are logged with what the person on call needs.
func TestFailingClientsDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logger := logtest.New(slog.LevelInfo)
		server := memlock.NewServer()
		s := &scene{T: t, server: server, one: newHost(t, server, nil, func(c *Config) { c.Logger = logger })}
		const holds = 50
		for i := range holds {
			s.rawConn(fmt.Sprint("/jobs/", i))
		}
		time.Sleep(2 * lease)
		need.Equal(t, "holds that were not renewed", s.one.agent.ends[notRenewed].Load(), holds)
		lines := log.Lines(slog.LevelWarn, "was not renewed")
		need.Len(t, "log lines", lines, 20)
		need.Has(t, "a log line", lines[0], "path=/jobs/", "token=", "client=", "since=")
		need.Len(t, "log lines about those that are left out", log.Lines(slog.LevelWarn, "left out"), 1)
		time.Sleep(time.Minute)
		s.rawConn("/jobs/later")
		time.Sleep(2 * lease)
		need.Len(t, "log lines after a minute", log.Lines(slog.LevelWarn, "was not renewed"), 21)
	})
}

// An agent that refuses new holds, because it has all its connections, says so once a minute.
func TestFullAgentSaysSoOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logger := logtest.New(slog.LevelInfo)
		server := memlock.NewServer()
		s := &scene{T: t, server: server, one: newHost(t, server, nil, func(c *Config) { c.Logger, c.Clients = logger, 12 })}
		for i := range 12 {
			s.rawConn(fmt.Sprint("/jobs/", i))
		}
		for range 10 {
			status, _ := s.ask(http.MethodPost, "/v1/hold?path=/other", "")
			need.Equal(t, "status", status, http.StatusTooManyRequests)
		}
		need.Len(t, "log lines", log.Lines(slog.LevelWarn, "raise -clients"), 1)
		time.Sleep(time.Minute)
		s.ask(http.MethodPost, "/v1/hold?path=/other", "")
		need.Len(t, "log lines after a minute", log.Lines(slog.LevelWarn, "raise -clients"), 2)
	})
}

// pipes is a listener in memory.
type pipes struct{ *host }

func (p pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

// Scrapers that stop in the middle hold up neither the clients of the agent nor, for long, other scrapers.
func TestStoppedScraperHoldsUpNeitherClientsNorOtherScrapersForLong(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		l := pipes{&host{conns: make(chan net.Conn), ended: make(chan struct{})}}
		server := s.one.agent.MetricsServer(need.Get(tierprom.New())(t))
		served := make(chan error, 1)
		go func() { served <- server.Serve(netutil.LimitListener(l, 4)) }()
		for i := range 4 {
			conn := need.Get(l.dial(s.Context()))(t)
			defer conn.Close()
			if i > 0 { // one says nothing at all, and the others read nothing
				say(t, conn, "GET /metrics")
			}
		}
		synctest.Wait()
		before := time.Now()
		need.OK(t, s.acquire(s.a).Release())
		need.Between(t, "an acquisition and a release", time.Since(before), 0, 100*time.Millisecond)
		conn := need.Get(l.dial(s.Context()))(t)
		defer conn.Close()
		say(t, conn, "GET /metrics")
		await(t, bufio.NewScanner(conn), "tierlock_agent_holds 0")
		need.Between(t, "the wait of another scraper", time.Since(before), 0, 2*scrapeTime)
		server.Close()
		need.WantErr(t, "Serve", <-served, http.ErrServerClosed)
		l.Close()
	})
}

// Connections are few. Scrapers that keep theirs without a further request, or with an unfinished one, keep others out only for a while.
func TestIdleScrapersDoNotKeepOthersOutForLong(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		l := pipes{&host{conns: make(chan net.Conn), ended: make(chan struct{})}}
		server := s.one.agent.MetricsServer(need.Get(tierprom.New())(t))
		served := make(chan error, 1)
		const most = 16
		go func() { served <- server.Serve(netutil.LimitListener(l, most)) }()
		defer func() {
			server.Close()
			need.WantErr(t, "Serve", <-served, http.ErrServerClosed)
			l.Close()
		}()
		ctx, cancel := context.WithTimeout(s.Context(), 2*scrapeTime)
		defer cancel()
		ask := func(more string) net.Conn {
			conn := need.Get(l.dial(ctx))(t)
			need.Get(io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: agent\r\n"+more+"\r\n"))(t)
			return conn
		}
		scrape := func() net.Conn {
			conn := ask("")
			await(t, bufio.NewScanner(conn), "tierlock_agent_holds 0")
			go io.Copy(io.Discard, conn)
			return conn
		}
		defer ask("Content-Length: 1000\r\n").Close()
		for range most - 1 {
			defer scrape().Close()
		}
		before := time.Now()
		scrape().Close()
		need.Between(t, "the wait of another scraper", time.Since(before), 0, scrapeTime)
	})
}

// The alerts and the dashboard are tested with metrics of the same names, and not with those of an agent.
func TestAlertsAndDashboardNameMetricsOfTheAgent(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		page := s.one.page(t)
		for _, file := range []string{"alerts.yaml", "grafana.json"} {
			text := need.Get(os.ReadFile("../../../../docs/" + file))(t)
			names := regexp.MustCompile(`tierlock_agent_\w+(\{reason="\w+"\})?`).FindAllString(string(text), -1)
			need.AtLeast(t, "metrics of the agent in "+file, len(names), 3)
			for _, name := range names {
				if strings.HasSuffix(name, "}") {
					need.Has(t, "the page", page, "\n"+name+" ")
				} else {
					need.Has(t, "the page", page, "\n# TYPE "+name+" ")
				}
			}
		}
	})
}

// Labels with paths or processes would have an unlimited number of values.
func TestMetricsNameNoPathAndNoProcess(t *testing.T) {
	onTwoHosts(t, func(s *scene) {
		s.rawConn(report)
		for line := range strings.Lines(s.one.page(t)) {
			need.That(t, "a path or a process in "+line, !strings.Contains(line, report) && !strings.Contains(line, "pid="))
		}
	})
}
