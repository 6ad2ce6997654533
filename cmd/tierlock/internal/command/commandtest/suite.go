//go:build linux || darwin || freebsd

package commandtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/tier"
)

// A Site is a server of the store, together with the settings to connect to it.
type Site struct {
	Env     []string // environment variables with which the command finds the server
	Nowhere []string // environment variables with which the command finds no server

	// Locks returns a registry of locks that represents another process, with a label. The suite closes the registry.
	Locks   func(t *testing.T, label string) (*tier.Registry, error)
	BadPath string // a path that cannot be the path of a lock; "" stands for a path with an empty component

	// Ailing means that doctor reports a problem of the server itself.
	Ailing bool
	Server *child.Server
	// Forget makes the server grant no locks for the time of a lease, like a server that may have forgotten grants. Forget is nil if the
	// store has no grace period.
	Forget func() error
}

// Run runs the suite on servers of a store. Tests may share a server. Tests that pause the server pass own as true, and get their own
// server.
func Run(t *testing.T, site func(t *testing.T, own bool) Site) {
	for _, c := range []struct {
		name    string
		test    func(*testing.T, Site)
		own     bool // the test needs its own server
		forgets bool // the test needs a store that may forget grants
	}{
		{"runs take turns", oneAtATime, false, false},
		{"not acquired", notAcquired, false, false},
		{"readers run together", readersTogether, false, false},
		{"permits are shared", permitsAreShared, false, false},
		{"the queue is seen", queueIsSeen, false, false},
		{"changes are seen", changesAreSeen, false, false},
		{"holders are asked", holdersAreAsked, false, false},
		{"locks are broken", locksAreBroken, false, false},
		{"permits are broken", permitsAreBroken, false, false},
		{"values are seen", valuesAreSeen, false, false},
		{"slots run once", slotsRunOnce, false, false},
		{"wrong command lines", wrongCommandLines, false, false},
		{"output that cannot be written", outputCannotBeWritten, false, false},
		{"without a server", withoutAServer, false, false},
		{"loss ends the command in time", lossEndsTheCommand, true, false},
		{"a grace period is seen", gracePeriodIsSeen, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.forgets && site(t, false).Forget == nil {
				t.Skip("this store has no grace period")
			}
			c.test(t, site(t, c.own))
		})
	}
}

// RunAlike runs the tests of the processes of run and of their command. These tests are the same for every store, so it is enough to run
// them with the command of one store.
func RunAlike(t *testing.T, site func(t *testing.T, own bool) Site) {
	for name, test := range map[string]func(*testing.T, Site){
		"status and environment":  statusAndEnvironment,
		"a signal ends the wait":  signalEndsTheWait,
		"a killed runner lets go": killedRunner,
		"runs are asked":          runsAreAsked,
		"slots and signals":       slotsAndSignals,
		"slots move on request":   slotsMoveOnRequest,
		"slots that were cut off": slotsCutOff,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, site(t, false))
		})
	}
}

func (s Site) start(t *testing.T, args ...string) *Tool {
	t.Helper()
	return Start(t, s.Env, args...)
}

func (s Site) want(t *testing.T, args string, status int, patterns ...string) string {
	t.Helper()
	return Want(t, s.Env, args, status, patterns...)
}

// examine checks the output of doctor for a lock without problems.
func (s Site) examine(t *testing.T, path string, patterns ...string) {
	t.Helper()
	status := 0
	if s.Ailing {
		status = 1
	}
	s.want(t, "doctor "+path, status, patterns...)
}

// The method locks returns a registry of locks that represents another process. The registry is closed at the end of the test.
func (s Site) locks(t *testing.T, label string) *tier.Registry {
	t.Helper()
	locks, err := s.Locks(t, label)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}

// The method acquire acquires a lock for another process.
func (s Site) acquire(t *testing.T, path, label string) *tier.Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	hold, err := s.locks(t, label).Mutex(path).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return hold
}

// A seen is a contender in the JSON output of who.
type seen struct {
	Node  string
	Kind  string
	State string
	Token int64
	PID   int
	Label string
	Asked bool
	Waits string `json:"waits_for"`
}

// Site.who returns the queue of a lock, as the subcommand who prints it.
func (s Site) who(t *testing.T, path string) []seen {
	t.Helper()
	var queue struct{ Contenders []seen }
	if err := json.Unmarshal([]byte(s.want(t, "who "+path+" -o json", 0)), &queue); err != nil {
		t.Fatal(err)
	}
	return queue.Contenders
}

// If there are several runs on one path, only one at a time runs its command.
func oneAtATime(t *testing.T, s Site) {
	stage := NewStage(t)
	var tools []*Tool
	for range 4 {
		tools = append(tools, s.start(t, Under("-v", "/turns", stage.Command()...)...))
	}
	for range tools {
		section := stage.First()
		time.Sleep(20 * time.Millisecond) // time in which another command could start by mistake
		section.Leave(0)
	}
	for _, p := range tools {
		p.Exits(0)
		p.Says("acquired after")
	}
}

// The exit status of run is the status of the command, as in a shell. The command gets the path, a token that grows, and standard input.
func statusAndEnvironment(t *testing.T, s Site) {
	for script, status := range map[string]int{"exit 0": 0, "exit 75": 75, "kill -TERM $$": 143, "kill -KILL $$": 137} {
		s.start(t, Under("", "/status", "sh", "-c", script)...).Exits(status)
	}
	for command, status := range map[string]int{"no-such-command": 127, "./no-such-command": 127, "/dev/null": 126} {
		s.start(t, Under("", "/status", command)...).Exits(status)
	}
	var tokens [2]int64
	for i := range tokens {
		stdin := func(cmd *exec.Cmd) { cmd.Stdin = strings.NewReader("from stdin") }
		p := StartWith(t, s.Env, stdin, Under("", "/status", "sh", "-c", `cat; echo " $TIERLOCK_PATH $TIERLOCK_TOKEN"`)...)
		p.Exits(0)
		if _, err := fmt.Sscanf(p.Stdout.String(), "from stdin /status %d\n", &tokens[i]); err != nil {
			t.Errorf("the command prints %q: %v", p.Stdout, err)
		}
		if p.Stderr.String() != "" {
			t.Errorf("there are messages without -v: %s", p.Stderr)
		}
	}
	if tokens[0] >= tokens[1] || tokens[0] <= 0 {
		t.Errorf("tokens %v do not grow", tokens)
	}
}

// With -n, run does not wait for a taken lock. With -w, run waits only for the given time. The message names the holder.
func notAcquired(t *testing.T, s Site) {
	stage := NewStage(t)
	holder := s.start(t, Under("", "/taken", stage.Command()...)...)
	section := stage.First()
	for flags, status := range map[string]int{"-n": 75, "-w 300ms -E 9": 9} {
		p := s.start(t, Under(flags, "/taken", stage.Command()...)...)
		p.Exits(status)
		p.Says(fmt.Sprintf("held by process %d on ", holder.Keeper()))
	}
	stage.NoMore()
	if queue := s.who(t, "/taken"); len(queue) != 1 {
		t.Errorf("the queue is %+v, want the holder alone", queue)
	}
	section.Lives()
	section.Leave(5)
	holder.Exits(5)
	s.start(t, Under("-n", "/taken", "true")...).Exits(0)
}

// Readers run at the same time. A writer waits for all readers ahead of it, and readers that come later wait for the writer.
func readersTogether(t *testing.T, s Site) {
	stage := NewStage(t)
	readers := []*Tool{s.start(t, Under("-s", "/data", stage.Command()...)...), s.start(t, Under("-s", "/data", stage.Command()...)...)}
	sections := []*Section{stage.Next(), stage.Next()}
	p := s.start(t, Under("-n", "/data", stage.Command()...)...)
	p.Exits(75)
	p.Says("held by process ")
	p.Says(" and 1 more\n")
	writer := s.start(t, Under("", "/data", stage.Command()...)...)
	childtest.Eventually(t, "a contender", func() bool { return len(s.who(t, "/data")) == 3 })
	queue := s.who(t, "/data")
	if queue[0].State != "holds" || queue[1].State != "holds" || queue[1].Kind != "tierlock-read" || queue[2].State != "waits" {
		t.Errorf("the queue is %+v, want two readers and a waiter", queue)
	}
	p = s.start(t, Under("-s -n", "/data", stage.Command()...)...)
	p.Exits(75)
	p.Says(fmt.Sprintf("wanted, and not to read, by process %d on ", writer.Keeper()))
	stage.NoMore()
	for _, section := range sections {
		section.Leave(0)
	}
	for _, reader := range readers {
		reader.Exits(0)
	}
	section := stage.Next()
	p = s.start(t, Under("-s -w 300ms", "/data", stage.Command()...)...)
	p.Exits(75)
	p.Says(fmt.Sprintf("held by process %d on ", writer.Keeper()))
	section.Leave(0)
	writer.Exits(0)
	s.start(t, Under("-s -n", "/data", "true")...).Exits(0)
}

// hasPermits reports whether the store has semaphores. If it has none, hasPermits checks that a run for permits is refused.
func (s Site) hasPermits(t *testing.T) bool {
	t.Helper()
	_, err := s.locks(t, "").Semaphore("/permits/none", 1).Contenders(t.Context())
	if !errors.Is(err, errors.ErrUnsupported) {
		return true
	}
	s.want(t, "run -permits 1 /permits/none -- true", 64, "semaphore /permits/none")
	return false
}

// Runs share the permits of a semaphore. They never hold more permits than there are, and requests are served whole and in order. The
// output shows how many permits each run has, and which runs wait.
func permitsAreShared(t *testing.T, s Site) {
	if !s.hasPermits(t) {
		return
	}
	watch := s.start(t, "watch", "/permits", "-every", "100ms")
	stage := NewStage(t)
	first := s.start(t, Under("-permits 5 -weight 3", "/permits/db", stage.Command()...)...)
	large := stage.Next()
	second := s.start(t, Under("-permits 5", "/permits/db", stage.Command()...)...)
	small := stage.Next()
	p := s.start(t, Under("-n -permits 5 -weight 2", "/permits/db", stage.Command()...)...)
	p.Exits(75)
	p.Says(fmt.Sprintf("/permits/db: not acquired: 4 of 5 permits in use, 3 by process %d on ", first.Keeper()))
	p.Says(" and 1 more\n")
	s.want(t, "run -permits 4 /permits/db -- true", 0) // there are 5 permits, because the first process gave this number

	whole := s.start(t, Under("-v -permits 5 -weight 5", "/permits/db", stage.Command()...)...)
	whole.Says("waiting: 4 of 5 permits in use, 3 by process ")
	p = s.start(t, Under("-w 300ms -permits 5", "/permits/db", stage.Command()...)...)
	p.Exits(75)
	p.Says(fmt.Sprintf("next is process %d on ", whole.Keeper()))
	pid := func(p *Tool) string { return fmt.Sprintf(`\S+ pid %d run \S+`, p.Keeper()) }
	s.want(t, "ls /permits", 0, `(?m)^/permits/db +1 +- +4 of 5 permits in use$`)
	s.want(t, "who /permits/db", 0, "/permits/db: 4 of 5 permits in use", `(?m)^3 .* `+pid(first), `(?m)^1 .* `+pid(second),
		"waiting for permits", `next +tierlock .*`+pid(whole))
	s.want(t, "who /permits/db -o json", 0, `"permits": 5,\s+"in_use": 4`)
	watch.Prints(watch.Stdout, `/permits/db 4 of 5 permits in use: 3 by `+pid(first)+`, 1 by `+pid(second)+`; 1 process waits$`)
	s.want(t, "permits -set 7 /permits/db -o json", 0, `"path": "/permits/db",\s+"permits": 7`)
	s.want(t, "who /permits/db", 0, "/permits/db: 4 of 7 permits in use")
	s.want(t, "permits -set 5 /permits/db", 0, `(?m)^/permits/db has 5 permits$`)
	s.want(t, "permits /permits/db", 64, "permits needs -set N")
	s.want(t, "revoke /permits/db", 1, "permits cannot be revoked")
	s.want(t, "break /permits/db -yes -token 987654321", 1,
		"nothing was deleted: 987654321 is not the token of a holder; 4 of 5 permits in use: 3 by .*, 1 process waits")

	large.Leave(3)
	first.Exits(3)
	watch.Prints(watch.Stdout, `/permits/db 1 of 5 permits in use: 1 by `+pid(second))
	stage.NoMore()
	small.Leave(0)
	second.Exits(0)
	stage.Next().Leave(0)
	whole.Exits(0)
}

// A signal ends a run that waits, and its entry in the queue is removed.
func signalEndsTheWait(t *testing.T, s Site) {
	stage := NewStage(t)
	hold := s.acquire(t, "/waits", "")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1} {
		p := s.start(t, Under("", "/waits", stage.Command()...)...)
		childtest.Eventually(t, "a contender", func() bool { return len(s.who(t, "/waits")) == 2 })
		p.Signal(sig)
		p.Exits(128 + int(sig))
		if queue := s.who(t, "/waits"); len(queue) != 1 {
			t.Errorf("after %v the queue is %+v, want the holder alone", sig, queue)
		}
	}
	stage.NoMore()
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
}

// After a kill -9 of the runner, the command gets TERM, and later KILL. Then the lock is released at once, and not at the end of the
// session.
func killedRunner(t *testing.T, s Site) {
	stage := NewStage(t)
	p := s.start(t, Under("-grace 200ms -session 30s", "/killed", stage.Command("stubborn", "daemon")...)...)
	victims := []*Section{stage.First(), stage.Next()}
	s.start(t, Under("", "/killed", stage.Command()...)...)
	childtest.Eventually(t, "a contender", func() bool { return len(s.who(t, "/killed")) == 2 })
	p.Signal(syscall.SIGKILL)
	killed := time.Now()
	victims[0].Hears(syscall.SIGTERM)
	next := stage.First()
	for _, victim := range victims {
		if end := victim.Dies(); end.After(next.Begun) {
			t.Errorf("a command outlives the lock by %v", end.Sub(next.Begun))
		}
	}
	if took := next.Begun.Sub(killed); took > 20*time.Second {
		t.Errorf("the lock is free after %v, as if its session had to time out", took)
	}
	next.Leave(0)
}

// The subcommands ls, who and doctor show the holder and the waiters.
func queueIsSeen(t *testing.T, s Site) {
	s.want(t, "ls /seen", 0, "no lock at /seen or below it")
	s.want(t, "who /seen/report", 0, "free, with no waiters")
	s.examine(t, "/seen/report", "ok +.*these credentials may")

	hold := s.acquire(t, "/seen/report", "billing")
	stage := NewStage(t)
	waiter := s.start(t, Under("", "/seen/report", stage.Command()...)...)
	childtest.Eventually(t, "a contender", func() bool { return len(s.who(t, "/seen/report")) == 2 })
	pid := fmt.Sprint(os.Getpid())
	s.want(t, "ls /seen", 0, `(?m)^/seen/report +2 .*tierlock .* pid `+pid+` billing$`)
	s.want(t, "ls", 0, `(?m)^/seen/report +2 `)
	s.want(t, "ls /see", 0, "no lock at /see or below it")
	s.want(t, "who /seen/report", 0, `holds +tierlock .* pid `+pid+` billing`, `waits +tierlock .* run \S+`)
	s.examine(t, "/seen/report", `tierlock on host .*, pid `+pid+`, label "billing"; holds the lock`,
		`; waits, with 1 ahead of it: the nearest is #0`)
	queue := s.who(t, "/seen/report")
	if h, w := queue[0], queue[1]; h.Token != hold.Token() || h.State != "holds" || h.Kind != "tierlock" || h.PID != os.Getpid() ||
		w.State != "waits" || w.Waits != h.Node {
		t.Errorf("got %+v", queue)
	}
	var list struct {
		Locks []struct {
			Path   string
			Queue  int
			Holder seen
		}
	}
	if err := json.Unmarshal([]byte(s.want(t, "ls /seen -o json", 0)), &list); err != nil {
		t.Fatal(err)
	}
	if l := list.Locks; len(l) != 1 || l[0].Path != "/seen/report" || l[0].Queue != 2 || l[0].Holder.Token != hold.Token() {
		t.Errorf("got %+v", list)
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
	stage.First().Leave(0)
	waiter.Exits(0)
}

// The subcommand watch reports each change once.
func changesAreSeen(t *testing.T, s Site) {
	p := s.start(t, "watch", "/changes/report", "-every", "100ms")
	p.Says("no lock at /changes/report or below it is held or has waiters yet\n")
	hold := s.acquire(t, "/changes/report", "billing")
	p.Prints(p.Stdout, fmt.Sprintf(`^\S+Z /changes/report held by tierlock .* billing, token %d, no process waits$`, hold.Token()))
	stage := NewStage(t)
	waiter := s.start(t, Under("", "/changes/report", stage.Command()...)...)
	p.Prints(p.Stdout, `^\S+Z /changes/report queued: tierlock .* run \S+, #1$`)
	waiter.Signal(syscall.SIGTERM)
	p.Prints(p.Stdout, `^\S+Z /changes/report no longer awaited by tierlock .* run \S+$`)
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
	p.Prints(p.Stdout, `/changes/report free$`)
	p.Signal(syscall.SIGINT)
	p.Exits(0)
	if n := strings.Count(p.Stdout.String(), "\n"); n != 4 {
		t.Errorf("%d lines, want 4:\n%s", n, p.Stdout)
	}
}

// Each holder is notified that another process has asked for its lock. The holder need not release the lock.
func holdersAreAsked(t *testing.T, s Site) {
	s.want(t, "revoke /asked", 1, "/asked is free: there is no holder to ask")
	hold := s.acquire(t, "/asked", "billing")
	revoked := hold.RevokeRequested()
	s.want(t, "revoke /asked", 0, "asked tierlock .* billing; it releases the lock if the program listens")
	select {
	case <-revoked:
	case <-time.After(Patience):
		t.Error("the holder does not hear of it")
	}
	s.want(t, "who /asked", 0, "holds, asked +tierlock")
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
}

// If a process asks for the lock of a run, the run continues. With -revocable, the run ends its command and releases the lock. It releases
// the lock at once if the command obeys TERM, and after -grace otherwise.
func runsAreAsked(t *testing.T, s Site) {
	stage := NewStage(t)
	p := s.start(t, Under("", "/goes-on", stage.Command()...)...)
	section := stage.First()
	s.want(t, "revoke /goes-on", 0, "asked tierlock .* run .*; it ignores requests, because run was started without -revocable")
	section.Lives()
	section.Leave(4)
	p.Exits(4)

	for _, modes := range [][]string{nil, {"stubborn"}} {
		stage := NewStage(t)
		p := s.start(t, Under("-revocable -grace 500ms", "/gives-way", stage.Command(modes...)...)...)
		section := stage.First()
		next := s.start(t, Under("", "/gives-way", stage.Command()...)...)
		childtest.Eventually(t, "a contender", func() bool { return len(s.who(t, "/gives-way")) == 2 })
		section.Lives()
		asked := time.Now()
		s.want(t, "revoke /gives-way", 0, "asked tierlock .* run -revocable .*; it ends its command")
		after := stage.First()
		if early := asked.Add(500 * time.Millisecond); modes != nil && after.Begun.Before(early) {
			t.Errorf("KILL came %v before the end of -grace", early.Sub(after.Begun))
		}
		p.Exits(map[bool]int{true: 128 + int(syscall.SIGTERM), false: 128 + int(syscall.SIGKILL)}[modes == nil])
		p.Says("revoke requested; sending TERM, and KILL in 500ms")
		after.Leave(0)
		next.Exits(0)
	}
}

// The subcommand break takes a lock away only from the holder with the given token.
func locksAreBroken(t *testing.T, s Site) {
	hold := s.acquire(t, "/broken", "billing")
	stage := NewStage(t)
	next := s.start(t, Under("", "/broken", stage.Command("stubborn")...)...)
	childtest.Eventually(t, "a contender", func() bool { return len(s.who(t, "/broken")) == 2 })
	s.want(t, "break /broken", 64, "needs -token N")
	s.want(t, fmt.Sprintf("break /broken -token %d", hold.Token()), 64, "-yes") // /dev/null cannot answer the question
	s.want(t, fmt.Sprintf("break /broken -yes -token %d", hold.Token()+1<<40), 1,
		`nothing was deleted: \d+ is not the token of a holder; the lock is held by tierlock .* billing, token`)
	s.want(t, fmt.Sprintf("break /broken -yes -token %d", s.who(t, "/broken")[1].Token), 1, "is not the token of a holder")
	if err := hold.Err(); err != nil {
		t.Fatalf("after a break with another token: %v", err)
	}
	s.want(t, fmt.Sprintf("break /broken -yes -token %d", hold.Token()), 0, "deleted .* of tierlock .* billing",
		"the lock is held by tierlock", "may continue to work")
	section := stage.First()
	select {
	case <-hold.Lost():
	case <-time.After(Patience):
		t.Error("the former holder does not hear of it")
	}
	hold.Release()

	queue := s.who(t, "/broken")
	s.want(t, fmt.Sprintf("break /broken -yes -token %d", queue[0].Token), 0, "the lock is free now")
	section.Dies()
	next.Exits(74)
	next.Says("KILL at once")
	if len(section.Said) > 0 {
		t.Error("the command got TERM")
	}
	s.start(t, Under("-n", "/broken", "true")...).Exits(0)
}

func valuesAreSeen(t *testing.T, s Site) {
	s.want(t, "value /valued", 1, "no value is saved beside /valued")
	hold := s.acquire(t, "/valued", "billing")
	if err := hold.Save(t.Context(), []byte("page 7\n")); err != nil {
		t.Fatal(err)
	}
	if said := s.want(t, "value /valued", 0); said != "page 7\n" {
		t.Errorf("value: %q", said)
	}
	s.want(t, "value /valued -o json", 0, `"size": 7,\s+"token": \d+`, `"data": "cGFnZSA3Cg=="`)
	s.want(t, "who /valued", 0, "value: 7 bytes, saved .* ago with token "+fmt.Sprint(hold.Token()))
	s.want(t, "who /valued -o json", 0, `"value": {\s+"size": 7,`)
	if err := hold.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.want(t, "value /valued -o json", 1, "no value")
	hold.Release()
}

// The subcommand break takes permits away from the process that has taken them with the given token, and waiters get these permits.
func permitsAreBroken(t *testing.T, s Site) {
	if !s.hasPermits(t) {
		return
	}
	stage := NewStage(t)
	holder := s.start(t, Under("-permits 2 -weight 2", "/broken/db", stage.Command("stubborn")...)...)
	section := stage.Next()
	next := s.start(t, Under("-permits 2", "/broken/db", stage.Command()...)...)
	var q struct {
		Semaphore struct {
			Shares []struct{ Tokens []int64 }
			Queue  []seen
		}
	}
	childtest.Eventually(t, "a contender", func() bool {
		return json.Unmarshal([]byte(s.want(t, "who /broken/db -o json", 0)), &q) == nil && len(q.Semaphore.Queue) == 1
	})
	token := q.Semaphore.Shares[0].Tokens[0]
	s.want(t, "who /broken/db", 0, fmt.Sprintf(`(?m)^PERMITS +NODE AGE +TOKEN .*\n2 .* %d .* pid %d `, token, holder.Keeper()))
	s.want(t, fmt.Sprintf("break /broken/db -yes -token %d", q.Semaphore.Queue[0].Token), 1,
		"is not the token of a holder; 2 of 2 permits in use")
	s.want(t, fmt.Sprintf("break /broken/db -yes -token %d", token), 0, fmt.Sprintf(`deleted permits of \S+ pid %d run`, holder.Keeper()),
		"of 2 permits in use", "may continue to work")
	stage.Next().Leave(0)
	next.Exits(0)
	section.Dies()
	holder.Exits(74)
	holder.Says("KILL at once")
	s.want(t, fmt.Sprintf("break /broken/db -yes -token %d", token), 1, "is not the token of a holder")
}

// If the command line is wrong, tierlock exits with 64 before it starts anything.
func wrongCommandLines(t *testing.T, s Site) {
	stage := NewStage(t)
	bad := cmp.Or(s.BadPath, "/a//b")
	for _, c := range []struct {
		args []string
		want string
	}{
		{Under("", bad, stage.Command()...), bad},
		{Under("-grace 20s -session 4s", "/x", stage.Command()...), "-grace 20s is too long"},
		{Under("-permits 0", "/x", stage.Command()...), "want a number of 1 or more"},
		{Under("-weight 2", "/x", stage.Command()...), "give -permits, too"},
		{Under("-permits 2 -weight 3", "/x", stage.Command()...), "is more than -permits"},
		{Under("-permits 2 -s", "/x", stage.Command()...), "give only one of them"},
		{Under("-permits 2 -revocable", "/x", stage.Command()...), "permits cannot be revoked"},
		{Under("-every 1h -cron @daily", "/x", stage.Command()...), "are two schedules; give only one of them"},
		{Under("-every 10ms", "/x", stage.Command()...), "-every 10ms is too short; want 1s or more"},
		{Under("-cron @every_1h", "/x", stage.Command()...), `invalid value "@every_1h" for flag -cron: `},
		{Under("-every 1h -n", "/x", stage.Command()...), "always waits to take over"},
		{Under("-cron @daily -w 1s", "/x", stage.Command()...), "always waits to take over"},
		{Under("-every 1h -s", "/x", stage.Command()...), "runs in only one process"},
		{Under("-every 1h -permits 2", "/x", stage.Command()...), "need a lock"},
		{Under("-catch-up 1", "/x", stage.Command()...), "give -every or -cron, too"},
		{Under("-after-crash retry", "/x", stage.Command()...), "give -every or -cron, too"},
		{Under("-every 1h -catch-up -1", "/x", stage.Command()...), "want a number of 0 or more"},
		{Under("-every 1h -after-crash again", "/x", stage.Command()...), "want skip or retry"},
		{[]string{"keep", "/x", "--", "true"}, `only "tierlock run" starts`},
		{[]string{"who", bad}, bad},
		{[]string{"rum", "/x"}, `no subcommand "rum"`},
		{[]string{"watch"}, "the PATH to watch is missing"},
	} {
		p := s.start(t, c.args...)
		p.Exits(64)
		p.Says(c.want)
		if text := p.Stderr.String(); !strings.HasPrefix(text, filepath.Base(Program)+": ") || strings.Count(text, "\n") != 1 {
			t.Errorf("%v says more or less than a line:\n%s", c.args, text)
		}
	}
	stage.NoMore()
}

// A subcommand whose output cannot be written reports this, and exits with 70. This also ends a subcommand that would run until it is
// interrupted.
func outputCannotBeWritten(t *testing.T, s Site) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	s.acquire(t, "/unwritten/held", "billing")
	for _, line := range []string{
		"who /unwritten/free", "who /unwritten/held -o json", "ls /unwritten", "watch /unwritten -every 100ms", "watch /unwritten -o json",
		"revoke /unwritten/held", "doctor /unwritten/held", "doctor /unwritten/held -o json", "help", "-version",
	} {
		p := StartWith(t, s.Env, func(cmd *exec.Cmd) { cmd.Stdout = full }, strings.Fields(line)...)
		p.Exits(70)
		p.Says("cannot print the output: ")
	}
}

// Without a server, subcommands report this, and exit with 69.
func withoutAServer(t *testing.T, s Site) {
	var tools []*Tool
	for _, line := range []string{"run /x -- true", "ls", "who /x", "watch /x", "break /x -token 1 -yes", "revoke /x", "doctor /x"} {
		tools = append(tools, Start(t, s.Nowhere, append([]string{"-connect-timeout", "500ms"}, strings.Fields(line)...)...))
	}
	for _, p := range tools {
		p.Exits(69)
	}
	p := Start(t, s.Nowhere, "-connect-timeout", "3s", "ls")
	p.Exits(69)
	p.Says("connection refused")
	if text := p.Stderr.String(); !strings.HasPrefix(text, filepath.Base(Program)+": ") {
		t.Errorf("somebody else than the command says: %s", text)
	}
}

// While no server answers, the command may run until the lease ends, under a lock, a read lock, or permits. Then the command is killed
// before another process can have the lock, even if the command ignores TERM. watch reports the outage.
func lossEndsTheCommand(t *testing.T, s Site) {
	const session = 4 * time.Second
	watch := s.start(t, "watch", "/lost", "-every", "100ms")
	stage := NewStage(t)
	flags := fmt.Sprintf("-session %v", session)
	holder := s.start(t, Under(flags, "/lost", stage.Command("stubborn", "daemon")...)...)
	victims := []*Section{stage.First(), stage.Next()}
	holders := []*Tool{holder, s.start(t, Under(flags+" -s", "/lost/data", stage.Command()...)...)}
	if s.hasPermits(t) {
		holders = append(holders, s.start(t, Under(flags+" -permits 5 -weight 2", "/lost/permits", stage.Command()...)...))
	}
	for range holders[1:] {
		victims = append(victims, stage.Next())
	}
	next := s.start(t, Under(flags, "/lost", stage.Command()...)...)
	watch.Prints(watch.Stdout, "/lost queued: ")
	holder.Signal(syscall.SIGSTOP) // stopped, so that the keeper has to kill the command
	if err := s.Server.Pause(); err != nil {
		t.Fatal(err)
	}
	paused := time.Now()
	var ends []time.Time
	for _, victim := range victims {
		ends = append(ends, victim.Dies())
	}
	took := slices.MaxFunc(ends, time.Time.Compare).Sub(paused)
	if t.Logf("dead %v after the server fell silent", took); took > session {
		t.Errorf("the command lives for %v without a server, with a session of %v", took, session)
	}
	victims[0].Hears(syscall.SIGTERM)
	holder.Signal(syscall.SIGCONT)
	for _, p := range holders {
		p.Exits(74)
		p.Says("TERM, and KILL in")
	}
	watch.Prints(watch.Stdout, "no answer from")
	if err := s.Server.Resume(); err != nil {
		t.Fatal(err)
	}
	stage.First().Leave(0)
	next.Exits(0)
	watch.Prints(watch.Stdout, "answers again")
}

// Subcommands report a server that is in a grace period, and show no holder.
func gracePeriodIsSeen(t *testing.T, s Site) {
	const why = `no grants until \d\d:\d\d:\d\d: the server `
	s.acquire(t, "/grace", "former").Release() // with this acquisition, the server knows how long leases last
	if err := s.Forget(); err != nil {
		t.Fatal(err)
	}
	watch := s.start(t, "watch", "-every", "100ms", "/grace")
	s.want(t, "run -n /grace -- true", 75, "not acquired: "+why)
	s.want(t, "run -w 200ms /grace -- true", 75, "not acquired within 200ms: "+why)
	s.want(t, "who /grace", 0, "free, with no waiters", "(?m)^"+why)

	waiting := s.start(t, Under("-v", "/grace", "true")...)
	waiting.Prints(waiting.Stderr, "waiting: "+why)
	waiting.Prints(waiting.Stderr, `level=WARN msg="\w+: grace period; [^"]*" until=20\S+ reason="the server `)
	watch.Prints(watch.Stdout, why)
	watch.Prints(watch.Stdout, "/grace queued: tierlock ")
	s.want(t, "who /grace", 0, `0 +grace-period +tierlock `, "(?m)^"+why)
	s.want(t, "who /grace -o json", 0, `"state": "grace-period"`, `"gracePeriod": \{\s+"until": "20[^"]+",\s+"reason": "the server `)
	s.want(t, "ls /grace", 0, `(?m)^/grace +1 +- +none yet$`, "(?m)^"+why)
	s.want(t, "doctor /grace", 1, `warning +`+why, "is first, and does not have the lock yet")
	for _, wrong := range []string{"held by", "just become free"} {
		if strings.Contains(waiting.Stderr.String()+watch.Stdout.String(), wrong) {
			t.Errorf("somebody is said to have the lock: %s%s", waiting.Stderr, watch.Stdout)
		}
	}
	waiting.Signal(syscall.SIGTERM) // the test would take too long if it waited for a lease of the default length
	waiting.Exits(128 + int(syscall.SIGTERM))
}
