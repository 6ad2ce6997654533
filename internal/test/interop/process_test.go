package interop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/internal/test/interop"
	"github.com/tierlock/tierlock/internal/test/need"
)

// A driver is the test's handle on a driver process.
type driver struct {
	kind    string
	session int64 // the ID of the session; 0 for drivers of tierlock
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan answer // closed when the process has ended
	stderr  strings.Builder
}

// The function launch starts a driver of each kind, and returns when all of them have a session.
func launch(t testing.TB, e *ensemble, timeout time.Duration, kinds ...string) []*driver {
	t.Helper()
	var drivers []*driver
	for _, kind := range kinds {
		d := &driver{kind: kind, answers: make(chan answer, 1)}
		d.run(t, command(t, kind), e.addr, e.path, strconv.FormatInt(timeout.Milliseconds(), 10), kind)
		drivers = append(drivers, d)
	}
	for _, d := range drivers {
		d.session = d.answer(t).Session
	}
	return drivers
}

// The function command returns the command that runs a driver, without arguments.
func command(t testing.TB, kind string) *exec.Cmd {
	t.Helper()
	var program []string
	var err error
	switch {
	case strings.HasPrefix(kind, "curator"):
		program, err = curator()
	case strings.HasPrefix(kind, "kazoo"):
		program, err = interop.Kazoo("drivers/kazoo_driver.py")
	default:
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), driverEnv+"=1")
		return cmd
	}
	if missing := child.Missing(""); errors.As(err, &missing) && !interop.Required() {
		t.Skip(err)
	}
	need.OK(t, err)
	return exec.Command(program[0], program[1:]...)
}

// The function curator compiles the Curator driver once, and returns its command line.
var curator = sync.OnceValues(func() ([]string, error) { return interop.Curator("drivers/CuratorDriver.java", scratch) })

func (d *driver) run(t testing.TB, cmd *exec.Cmd, args ...string) {
	t.Helper()
	d.cmd = cmd
	d.cmd.Args = append(d.cmd.Args, args...)
	d.cmd.Stderr = &d.stderr
	in, err1 := d.cmd.StdinPipe()
	out, err2 := d.cmd.StdoutPipe()
	need.OK(t, errors.Join(err1, err2, d.cmd.Start()))
	d.in = in
	go func() {
		defer close(d.answers)
		for decoder := json.NewDecoder(out); ; {
			var a answer
			if err := decoder.Decode(&a); err != nil {
				_ = d.cmd.Wait() // a driver that fails says so on stderr, or its answer is missing
				return
			}
			d.answers <- a
		}
	}()
	t.Cleanup(func() {
		d.dismiss()
		if t.Failed() && d.stderr.Len() > 0 {
			t.Logf("stderr of %s:\n%s", d.kind, d.stderr.String())
		}
	})
}

// The method order sends the driver an order.
func (d *driver) order(t testing.TB, format string, args ...any) {
	t.Helper()
	_, err := fmt.Fprintf(d.in, format+"\n", args...)
	need.Must(t, fmt.Sprintf("%s: %v", d.kind, err), err == nil)
}

// The method answer waits for the driver's answer to the oldest order that is not answered.
func (d *driver) answer(t testing.TB) answer {
	t.Helper()
	select {
	case a, ok := <-d.answers:
		need.Must(t, fmt.Sprintf("%s has ended", d.kind), ok)
		need.Must(t, fmt.Sprintf("%s: %s", d.kind, a.Error), a.Error == "")
		return a
	case <-time.After(patience + *duration):
		t.Fatalf("%s does not answer", d.kind)
		panic("unreachable")
	}
}

func (d *driver) do(t testing.TB, format string, args ...any) answer {
	t.Helper()
	d.order(t, format, args...)
	return d.answer(t)
}

// The method acquire makes the driver acquire the lock.
func (d *driver) acquire(t testing.TB) {
	t.Helper()
	d.do(t, "acquire")
}

func (d *driver) release(t testing.TB) {
	t.Helper()
	d.do(t, "release")
}

// The method kill ends the process as kill -9 would, and returns when it is gone.
func (d *driver) kill() {
	_ = d.cmd.Process.Kill() // fails only if the process has already ended
	d.awaitEnd()
}

// The method dismiss ends the session and the process.
func (d *driver) dismiss() {
	_ = d.in.Close()
	timer := time.AfterFunc(5*time.Second, func() { _ = d.cmd.Process.Kill() })
	defer timer.Stop()
	d.awaitEnd()
}

func (d *driver) awaitEnd() {
	for range d.answers {
	}
}
