//go:build unix

package election_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tierlock/tierlock"
	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"github.com/tierlock/tierlock/zklock"
)

const (
	candidateEnv = "TIERLOCK_TEST_CANDIDATE" // the address of the server, makes the test binary a candidate
	realTimeout  = 4 * time.Second           // of its session
	patience     = time.Minute
)

func init() {
	if addr := os.Getenv(candidateEnv); addr != "" {
		if err := campaign(addr, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// campaign is a process that acts as often as it can while it leads. It says on standard output when it begins to lead,
// what the first look says that does not find it leading, and when its function is told.
func campaign(addr, journal string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	locks, err := tierlock.Dial(ctx, addr, zklock.WithSessionTimeout(realTimeout))
	if err != nil {
		return err
	}
	defer locks.Close()
	acts, err := openJournal(journal)
	if err != nil {
		return err
	}
	e := election.New(locks, path)
	err = e.Run(ctx, func(ctx context.Context, term int64) error {
		say("leads", term)
		context.AfterFunc(ctx, func() { say("told", term) })
		for {
			led, err := acts.act(func() bool { return e.IsLeader(ctx) == nil }, term)
			if err != nil {
				return errors.Join(election.ErrStop, err)
			}
			if !led {
				say("looked", term)
				break
			}
			time.Sleep(time.Millisecond)
		}
		<-ctx.Done()
		return nil
	})
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func say(what string, term int64) { fmt.Println(what, term, time.Now().UnixNano()) }

// A journal is what leaders did, in the order in which they did it: a file with their terms, and a lock of the kernel,
// which knows nothing of ZooKeeper, under which a leader looks and acts. Whoever has the lock knows that nobody is
// between look and act.
type journal struct{ file *os.File }

func openJournal(name string) (journal, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	return journal{file}, err
}

func (j journal) act(leads func() bool, term int64) (led bool, err error) {
	unlock, err := j.lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	if !leads() {
		return false, nil
	}
	_, err = fmt.Fprintln(j.file, term)
	return true, err
}

func (j journal) lock() (unlock func(), err error) {
	for {
		err := syscall.Flock(int(j.file.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			return func() { _ = syscall.Flock(int(j.file.Fd()), syscall.LOCK_UN) }, err
		}
	}
}

// A scene is some candidates in processes of their own, at a real ZooKeeper.
type scene struct {
	t        *testing.T
	journal  journal
	all      []*member
	happened chan event
}

type member struct{ cmd *exec.Cmd }

// An event is something that a member said.
type event struct {
	who  *member
	what string
	term int64
	at   time.Time
}

func newScene(t *testing.T, n int) *scene {
	t.Helper()
	t.Parallel()
	server := zkservertest.Start(t, zkserver.Config{TickTime: 200 * time.Millisecond, NoSync: true})
	name := filepath.Join(t.TempDir(), "journal")
	j, err := openJournal(name)
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{t: t, journal: j, happened: make(chan event, 100)}
	t.Cleanup(func() { j.file.Close() })
	for range n {
		cmd := exec.Command(os.Args[0], name)
		cmd.Env = append(os.Environ(), candidateEnv+"="+server.Addr())
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		m := &member{cmd}
		s.all = append(s.all, m)
		heard := make(chan struct{})
		go func() {
			defer close(heard)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				e, nanos := event{who: m}, int64(0)
				if _, err := fmt.Sscan(lines.Text(), &e.what, &e.term, &nanos); err == nil {
					e.at = time.Unix(0, nanos)
					s.happened <- e
				}
			}
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			<-heard
			_ = cmd.Wait() // says that it was killed
		})
	}
	return s
}

// next waits until somebody says what is asked for.
func (s *scene) next(what string) event {
	s.t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case e := <-s.happened:
			if e.what == what {
				return e
			}
			if e.what == "leads" {
				s.t.Fatalf("somebody leads in term %d, want first that one has %s", e.term, what)
			}
		case <-deadline:
			s.t.Fatalf("nobody has %s", what)
		}
	}
}

// acts waits until the leader has acted some times more.
func (s *scene) acts() {
	s.t.Helper()
	for deadline, want := time.Now().Add(patience), len(s.terms())+5; len(s.terms()) < want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatal("the leader does nothing")
		}
	}
}

func (s *scene) terms() []string {
	s.t.Helper()
	text, err := os.ReadFile(s.journal.file.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Fields(string(text))
}

func (m *member) signal(t *testing.T, sig os.Signal) time.Time {
	t.Helper()
	before := time.Now()
	if err := m.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	return before
}

// stop returns when the member has stopped.
func (m *member) stop(t *testing.T) (since time.Time) {
	t.Helper()
	since = m.signal(t, syscall.SIGSTOP)
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(m.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || !status.Stopped():
			t.Fatalf("not stopped: %v, %v", err, status)
		default:
			return since
		}
	}
}

// succeeded checks that one of the others leads after at most so long, and that nobody has acted in an earlier term
// after one had acted in a later one.
func (s *scene) succeeded(before event, since time.Time, within time.Duration) event {
	s.t.Helper()
	leader := s.next("leads")
	took := leader.at.Sub(since)
	s.t.Logf("the next one leads after %v", took.Round(time.Millisecond))
	if took > within {
		s.t.Errorf("the next one leads after %v, want %v at most", took, within)
	}
	if leader.who == before.who || leader.term <= before.term {
		s.t.Errorf("the same process leads, or in term %d after %d", leader.term, before.term)
	}
	s.acts()
	s.ordered()
	return leader
}

func (s *scene) ordered() {
	s.t.Helper()
	var last int64
	for _, text := range s.terms() {
		var term int64
		if _, err := fmt.Sscan(text, &term); err != nil || term < last {
			s.t.Fatalf("somebody acted in term %s after another had acted in term %d", text, last)
		}
		last = term
	}
}

func TestLeaderThatEndsIsSucceeded(t *testing.T) {
	s := newScene(t, 4)
	leader := s.next("leads")
	for _, end := range []struct {
		signal os.Signal
		within time.Duration
	}{{syscall.SIGKILL, realTimeout + time.Second}, {syscall.SIGTERM, realTimeout / 4}, {syscall.SIGKILL, realTimeout + time.Second}} {
		s.acts()
		since := leader.who.signal(t, end.signal)
		leader = s.succeeded(leader, since, end.within)
	}
}

func TestStoppedLeaderIsToldAtItsFirstLook(t *testing.T) {
	s := newScene(t, 2)
	stopped := s.next("leads")
	s.acts()
	unlock, err := s.journal.lock()
	if err != nil {
		t.Fatal(err)
	}
	since := stopped.who.stop(t)
	unlock() // not before all its threads have stopped: one might be given the lock
	leader := s.succeeded(stopped, since, realTimeout+time.Second)
	time.Sleep(time.Until(since.Add(2 * realTimeout)))
	continued := stopped.who.signal(t, syscall.SIGCONT)
	for range 2 {
		select {
		case e := <-s.happened:
			if e.who != stopped.who || e.term != stopped.term || e.what == "leads" {
				t.Errorf("%s in term %d, want that the stopped one learns of the end of %d", e.what, e.term, stopped.term)
			}
			t.Logf("%s %v after it was continued", e.what, e.at.Sub(continued).Round(10*time.Microsecond))
			if e.at.Sub(continued) > time.Second {
				t.Errorf("%s %v after it was continued", e.what, e.at.Sub(continued))
			}
		case <-time.After(patience):
			t.Fatal("the leader that was stopped is not told")
		}
	}
	s.acts()
	s.ordered()
	ended := leader.who.signal(t, syscall.SIGTERM)
	s.succeeded(leader, ended, patience) // by the one that was stopped, as soon as it has a session again
}
