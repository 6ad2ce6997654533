package main_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/faultproxy"
	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// On Windows, these tests use the server of the subcommand dev, because no other server is available. The other tests of the command are
// for Unix.

// The flag short sets the session of runs that lose a lock in a test. The margin is then 1.33 s.
const short = "-session 4s "

var kernel32, ntdll = syscall.NewLazyDLL("kernel32.dll"), syscall.NewLazyDLL("ntdll.dll")

// onWine is true if this is Wine and not Windows. On Wine, Ctrl-Break cannot be sent, and Ctrl-C reaches only one process group.
var onWine = ntdll.NewProc("wine_get_version").Find() == nil

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "console" {
		beConsole(os.Args[2], os.Args[3:])
	}
	if len(os.Args) > 1 && os.Args[1] == "copy" {
		io.Copy(os.Stdout, os.Stdin)
		fmt.Fprint(os.Stderr, os.Getenv("TIERLOCK_PATH"), " under ", os.Getenv("TIERLOCK_TOKEN"))
		os.Exit(0)
	}
	commandtest.Main(m, func() (*zkserver.Server, error) { return nil, zkserver.ErrNotFound })
}

// serve starts a server, and returns it with its address.
func serve(t *testing.T) (*zktest.Server, string) {
	server := zktest.Start(t)
	return server, need.Get(server.Listen("127.0.0.1:0"))(t).String()
}

func start(t *testing.T, addr string, args ...string) *commandtest.Tool {
	t.Helper()
	return commandtest.Start(t, []string{"TIERLOCK_STORE=zk://" + addr}, args...)
}

// await returns when the path has the given number of contenders.
func await(t *testing.T, server *zktest.Server, path string, contenders int) {
	t.Helper()
	childtest.Eventually(t, fmt.Sprint(contenders, " at ", path), func() bool { return len(server.Children(path)) == contenders })
}

// hearsBreak waits until a stubborn command has got the signal to end. Wine cannot send it.
func hearsBreak(section *commandtest.Section) {
	if !onWine {
		section.Hears(syscall.SIGINT)
	}
}

// The command uses the runner's input and output. The exit status of the runner is that of the command, even one that Windows has set.
func TestCommandIsTheRunnersOwn(t *testing.T) {
	t.Parallel()
	_, addr := serve(t)
	p := commandtest.StartWith(t, []string{"TIERLOCK_STORE=zk://" + addr}, func(cmd *exec.Cmd) { cmd.Stdin = strings.NewReader("a line") },
		commandtest.Under("", "/own", os.Args[0], "copy")...)
	p.Exits(0)
	need.Equal(t, "the text that the command copied", p.Stdout.String(), "a line")
	p.Prints(p.Stderr, `^/own under \d+$`)
	stage := commandtest.NewStage(t)
	for _, status := range []int{0, 7, 255, 0xC0000005} {
		p := start(t, addr, commandtest.Under("", "/own", stage.Command()...)...)
		stage.First().Leave(status)
		p.Exits(status)
	}
	start(t, addr, commandtest.Under("", "/own", `C:\no\such.exe`)...).Exits(127)
	commandtest.Want(t, []string{"TIERLOCK_STORE=zk://" + addr}, "run /own", 64, "the command is missing")
	commandtest.Want(t, nil, "keep -store zk://"+addr+" -line 4,8 /own -- "+os.Args[0], 64, `only .tierlock run. starts`)
	stage.NoMore()
}

// Only one command runs at a time. The run keeps the lock until all processes that the command has started have ended, also those that have
// left the console.
func TestLockStaysForWhatIsLeft(t *testing.T) {
	t.Parallel()
	server, addr := serve(t)
	stage := commandtest.NewStage(t)
	p := start(t, addr, commandtest.Under("", "/left", stage.Command("family", "daemon")...)...)
	command, one, other := stage.First(), stage.Next(), stage.Next()
	next := start(t, addr, commandtest.Under("", "/left", stage.Command()...)...)
	await(t, server, "/left", 2)
	command.Leave(4)
	command.Dies()
	p.Says("held until these processes end: [")
	one.Leave(0)
	one.Dies()
	start(t, addr, commandtest.Under("-n", "/left", stage.Command()...)...).Exits(75)
	other.Leave(0)
	p.Exits(4)
	stage.Followed(command, one, other).Leave(0)
	next.Exits(0)
}

// When the lease ends, the command is asked to end. After the grace, the run kills it with all processes that it has started, before
// another command begins.
func TestLossEndsTheCommandBeforeTheNext(t *testing.T) {
	t.Parallel()
	server, addr := serve(t)
	proxy := need.Get(faultproxy.Start(addr))(t)
	defer proxy.Close()
	stage := commandtest.NewStage(t)
	p := start(t, proxy.Addr(), commandtest.Under(short, "/loss", stage.Command("stubborn", "daemon")...)...)
	victims := []*commandtest.Section{stage.First(), stage.Next()}
	next := start(t, addr, commandtest.Under(short, "/loss", stage.Command()...)...)
	await(t, server, "/loss", 2)
	proxy.Mute(zktest.Request)
	proxy.Mute(zktest.Reply)
	hearsBreak(victims[0])
	stage.Followed(victims...).Leave(0)
	p.Exits(74)
	next.Exits(0)
}

// The subcommand break kills the command at once. The subcommand revoke ends it with a grace.
func TestBreakAndRevokeEndTheCommand(t *testing.T) {
	t.Parallel()
	server, addr := serve(t)
	env := []string{"TIERLOCK_STORE=zk://" + addr}
	stage := commandtest.NewStage(t)
	p := start(t, addr, commandtest.Under("", "/taken", stage.Command("stubborn", "family", "daemon")...)...)
	sections := []*commandtest.Section{stage.First(), stage.Next(), stage.Next()}
	token := p.Prints(asked(t, env, "who /taken"), `holds +tierlock +\S+ +- +(\d+)`)[1]
	commandtest.Want(t, env, "break -yes -token "+token+" /taken", 0)
	p.Exits(74)
	p.Says("KILL at once")
	for _, section := range sections {
		section.Dies()
	}

	p = start(t, addr, commandtest.Under("-revocable -grace 300ms", "/asked", stage.Command("stubborn", "daemon")...)...)
	sections = []*commandtest.Section{stage.Next(), stage.Next()}
	commandtest.Want(t, env, "revoke /asked", 0, "it ends its command")
	hearsBreak(sections[0])
	p.Exits(137)
	for _, section := range sections {
		section.Dies()
	}
	need.Equal(t, "how many are left in the queue", len(server.Children("/asked")), 0)
}

// asked returns the output of a subcommand.
func asked(t *testing.T, env []string, args string) *logtest.Log {
	t.Helper()
	out := new(logtest.Log)
	io.WriteString(out, commandtest.Want(t, env, args, 0))
	return out
}

// One of the runner's two processes is terminated, or the keeper's threads are suspended for a while. Another command begins only when no
// process of the first one is left.
func TestKilledRunnerLeavesNothing(t *testing.T) {
	t.Parallel()
	type row struct {
		strike func(t *testing.T, p *commandtest.Tool)
		status int
	}
	need.Each(t, map[string]row{
		"the front":             {func(t *testing.T, p *commandtest.Tool) { p.Signal(syscall.SIGKILL) }, 1},
		"the keeper":            {func(t *testing.T, p *commandtest.Tool) { on(t, p.Keeper(), syscall.TerminateProcess) }, 74},
		"the keeper is stopped": {func(t *testing.T, p *commandtest.Tool) { on(t, p.Keeper(), suspend) }, 74},
		"both": {func(t *testing.T, p *commandtest.Tool) {
			keeper := p.Keeper()
			p.Signal(syscall.SIGKILL)
			on(t, keeper, syscall.TerminateProcess)
		}, 1},
	}, func(t *testing.T, c row) {
		t.Parallel()
		server, addr := serve(t)
		stage := commandtest.NewStage(t)
		p := start(t, addr, commandtest.Under(short, "/killed", stage.Command("stubborn", "family", "daemon")...)...)
		victims := []*commandtest.Section{stage.First(), stage.Next(), stage.Next()}
		next := start(t, addr, commandtest.Under(short, "/killed", stage.Command()...)...)
		await(t, server, "/killed", 2)
		c.strike(t, p)
		stage.Followed(victims...).Leave(0)
		p.Exits(c.status)
		next.Exits(0)
	})
}

// on(t, pid, do) calls do with a handle of a process.
func on(t *testing.T, pid int, do func(process syscall.Handle, status uint32) error) {
	t.Helper()
	const terminateAndSuspend = 0x1 | 0x800
	process := need.Get(syscall.OpenProcess(terminateAndSuspend, false, uint32(pid)))(t)
	defer syscall.CloseHandle(process)
	need.OK(t, do(process, 1))
}

func suspend(process syscall.Handle, _ uint32) error {
	if status, _, _ := ntdll.NewProc("NtSuspendProcess").Call(uintptr(process)); status != 0 {
		return syscall.Errno(status)
	}
	return nil
}

// While a command runs, Ctrl-C goes to the command, which may go on and keep the lock. While the runner waits for the lock, Ctrl-C ends the
// runner.
func TestCtrlCIsTheCommands(t *testing.T) {
	t.Parallel()
	ended := 0xC000013A
	if onWine {
		ended = 0
	}
	server, addr := serve(t)
	stage := commandtest.NewStage(t)
	holder := atConsole(t, addr, "shared", commandtest.Under("", "/typed", stage.Command("stubborn")...)...)
	section := stage.First()
	waiter := atConsole(t, addr, "shared", commandtest.Under("", "/typed", stage.Command()...)...)
	await(t, server, "/typed", 2)
	waiter.types("c")
	waiter.Exits(130)
	waiter.Says("/typed: interrupt; the command was not started")
	for range 2 {
		holder.types("c")
		section.Hears(syscall.SIGINT)
	}
	section.Lives()
	section.Leave(9)
	holder.Exits(9)

	mild := atConsole(t, addr, "shared", commandtest.Under("", "/typed", stage.Command("family")...)...)
	sections := []*commandtest.Section{stage.First(), stage.Next()}
	mild.types("c")
	mild.Exits(ended)
	for _, section := range sections {
		section.Dies()
	}
}

// Programs can send Ctrl-Break to the process group of the runner. The runner forwards it to the command.
func TestCtrlBreakIsPassedOn(t *testing.T) {
	t.Parallel()
	if onWine {
		t.Skip("wine has no Ctrl-Break that can be sent")
	}
	server, addr := serve(t)
	stage := commandtest.NewStage(t)
	holder := atConsole(t, addr, "apart", commandtest.Under("", "/break", stage.Command("stubborn")...)...)
	section := stage.First()
	waiter := atConsole(t, addr, "apart", commandtest.Under("", "/break", stage.Command()...)...)
	await(t, server, "/break", 2)
	waiter.types("break")
	waiter.Exits(130)
	holder.types("break")
	section.Hears(syscall.SIGINT)
	section.Leave(8)
	holder.Exits(8)

	mild := atConsole(t, addr, "apart", commandtest.Under("", "/break", stage.Command("family")...)...)
	sections := []*commandtest.Section{stage.First(), stage.Next()}
	mild.types("break")
	mild.Exits(0xC000013A)
	for _, section := range sections {
		section.Dies()
	}
}

// A console is a separate console window in which a program runs.
type console struct {
	*commandtest.Tool
	keyboard io.Writer
}

// atConsole starts the command at a console. Its process group is shared, as with a shell, or separate, as with other programs.
func atConsole(t *testing.T, addr, group string, args ...string) console {
	t.Helper()
	const noWindow = 0x08000000
	keys, keyboard, err := os.Pipe()
	need.OK(t, err)
	t.Cleanup(func() { keyboard.Close() })
	defer keys.Close()
	return console{commandtest.StartWith(t, []string{"TIERLOCK_STORE=zk://" + addr}, func(cmd *exec.Cmd) {
		cmd.Args = append([]string{os.Args[0], "console", group}, cmd.Args...)
		cmd.Path, cmd.Stdin = os.Args[0], keys
		cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: noWindow}
	}, args...), keyboard}
}

func (c console) types(key string) { fmt.Fprintln(c.keyboard, key) }

// beConsole runs a program at this process's console, and executes the keyboard events on its input.
func beConsole(group string, command []string) {
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	kernel32.NewProc("SetConsoleCtrlHandler").Call(0, 0) // makes sure that the program gets Ctrl-C
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if group == "apart" {
		cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	go func() {
		for keys := bufio.NewScanner(os.Stdin); keys.Scan(); {
			switch {
			case keys.Text() == "break":
				generate(ctrlBreak, cmd.Process.Pid)
			case onWine:
				generate(ctrlC, commandtest.ChildOf(cmd.Process.Pid))
				fallthrough
			default:
				generate(ctrlC, 0)
			}
		}
	}()
	cmd.Wait()
	os.Exit(cmd.ProcessState.ExitCode())
}

const ctrlC, ctrlBreak = 0, 1

// generate sends an event to a process group, or to all processes at this console.
func generate(event, group int) {
	if ok, _, err := kernel32.NewProc("GenerateConsoleCtrlEvent").Call(uintptr(event), uintptr(group)); ok == 0 {
		panic(err)
	}
}
