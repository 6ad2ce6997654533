package interop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

// Debian's packages; the manifests of the jars name what these need.
const (
	classpath = "/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-simple.jar"
	python    = "/usr/bin/python3"
)

// A driver is this side of a driver process.
type driver struct {
	kind    string
	session int64 // 0 for ours
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan answer // closed when the process has ended
	stderr  strings.Builder
}

// launch starts a driver of each kind and returns when all of them have a session.
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

// command returns the driver of a kind, without arguments.
func command(t testing.TB, kind string) *exec.Cmd {
	t.Helper()
	switch {
	case strings.HasPrefix(kind, "curator"):
		return curator(t)
	case strings.HasPrefix(kind, "kazoo"):
		if err := exec.Command(python, "-c", "import kazoo").Run(); err != nil {
			missing(t, "kazoo", err)
		}
		return exec.Command(python, "drivers/kazoo_driver.py")
	default:
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), driverEnv+"=1")
		return cmd
	}
}

func curator(t testing.TB) *exec.Cmd {
	t.Helper()
	for jar := range strings.SplitSeq(classpath, ":") {
		if _, err := os.Stat(jar); err != nil {
			missing(t, "Curator", err)
		}
	}
	java, err := jdk()
	if err != nil {
		missing(t, "a JDK", err)
	}
	classes := need.Get(compiled())(t)
	return exec.Command(java, "-XX:TieredStopAtLevel=1", "-Xmx128m",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classes+":"+classpath, "CuratorDriver")
}

// jdk returns the java command of a JDK.
var jdk = sync.OnceValues(func() (java string, err error) {
	java = "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java = filepath.Join(home, "bin", java)
	}
	modules, err := exec.Command(java, "--list-modules").Output()
	if err == nil && !strings.Contains(string(modules), "jdk.compiler") {
		err = errors.New("no compiler")
	}
	return java, err
})

// compiled returns the directory with the classes of the Curator driver.
var compiled = sync.OnceValues(func() (dir string, err error) {
	java, _ := jdk()
	out, err := exec.Command(java, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-d", scratch, "-cp", classpath,
		"drivers/CuratorDriver.java").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return scratch, err
})

// missing ends a test for want of a library.
func missing(t testing.TB, what string, why error) {
	t.Helper()
	end := t.Skipf
	if os.Getenv("TIERLOCK_REQUIRE_INTEROP") == "1" {
		end = t.Fatalf
	}
	end("%s is not on this machine (%v); scripts/get-interop.sh gets it", what, why)
}

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
				_ = d.cmd.Wait() // a driver that fails says so on stderr, or is missed
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

// order tells the driver what to do.
func (d *driver) order(t testing.TB, format string, args ...any) {
	t.Helper()
	_, err := fmt.Fprintf(d.in, format+"\n", args...)
	need.Must(t, fmt.Sprintf("%s: %v", d.kind, err), err == nil)
}

// answer waits for the answer to the oldest open order.
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

// acquire makes the driver hold the lock.
func (d *driver) acquire(t testing.TB) {
	t.Helper()
	d.do(t, "acquire")
}

func (d *driver) release(t testing.TB) {
	t.Helper()
	d.do(t, "release")
}

// kill ends the process as kill -9 would, and returns when it is gone.
func (d *driver) kill() {
	_ = d.cmd.Process.Kill() // fails only if it is gone already
	d.awaitEnd()
}

// dismiss ends the session and the process.
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
