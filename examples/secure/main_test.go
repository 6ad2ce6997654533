package main

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/internal/test/zkserver/zkservertest"
)

func TestMain(m *testing.M) { zkservertest.Main(m, main) }

// service returns the command that runs the program. The caller starts it.
func service(t *testing.T, ca, cert, servers, digest string) *exec.Cmd {
	return zkservertest.Program(t, "ZK_SERVERS="+servers, "ZK_CA="+ca, "ZK_CERT="+cert, "ZK_DIGEST="+digest)
}

func TestOnlyTheServiceGetsItsLock(t *testing.T) {
	authority := zkservertest.NewAuthority(t)
	server := childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true, TLS: authority.TLS("127.0.0.1")})
	ctx := need.Within(t, 2*time.Minute)
	servers, cert := zkserver.SecureAddr(server)+"/app", authority.Issue("service").File

	out, err := os.Create(t.TempDir() + "/out") // the output of both processes, in the order in which they write
	need.OK(t, err)
	defer out.Close()
	var fleet []*exec.Cmd
	for range 2 {
		cmd := service(t, authority.File, cert, servers, "service:password")
		cmd.Stdout, cmd.Stderr = out, t.Output()
		need.OK(t, cmd.Start())
		fleet = append(fleet, cmd)
	}
	for turns(t, out) < 10 {
		if ctx.Err() != nil {
			t.Fatalf("no ten turns of two processes: %s", read(t, out))
		}
		time.Sleep(10 * time.Millisecond)
	}

	var strangers sync.WaitGroup
	stranger := zkservertest.NewAuthority(t)
	for name, c := range map[string]struct {
		cmd  *exec.Cmd
		want string
	}{
		"another certificate and password": {service(t, authority.File, authority.Issue("other").File, servers, "service:guess"),
			"no CREATE permission"},
		"a certificate of a stranger": {service(t, authority.File, stranger.Issue("service").File, servers, "service:password"),
			"client certificate"},
		"a stranger for authority": {service(t, stranger.File, cert, servers, "service:password"), "RootCAs"},
	} {
		strangers.Go(func() {
			if said, err := c.cmd.CombinedOutput(); err == nil || !strings.Contains(string(said), c.want) {
				t.Errorf("%s: got %v: %s", name, err, said)
			}
		})
	}
	strangers.Wait()

	for _, cmd := range fleet {
		need.OK(t, cmd.Process.Signal(syscall.SIGTERM))
		need.WantErr(t, "the end of the service", cmd.Wait(), nil)
	}
	turns(t, out)
}

// turns returns the smallest number of acquisitions of any process. If two acquisitions overlap, the test fails.
func turns(t *testing.T, out *os.File) int {
	t.Helper()
	lines := strings.Split(read(t, out), "\n")
	had := make(map[string]int)
	for i := 0; i+2 < len(lines); i += 2 { // the last line may still be incomplete
		begun, ended := strings.TrimPrefix(lines[i], "begin "), strings.TrimPrefix(lines[i+1], "end ")
		if begun != ended {
			t.Fatalf("%q, then %q", lines[i], lines[i+1])
		}
		had[begun]++
	}
	fewest := 0
	for _, n := range had {
		if len(had) == 2 && (fewest == 0 || n < fewest) {
			fewest = n
		}
	}
	return fewest
}

func read(t *testing.T, file *os.File) string {
	t.Helper()
	text := need.Get(os.ReadFile(file.Name()))(t)
	return string(text)
}
