package zktest_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"github.com/tierlock/tierlock/zktest"
)

// A target is a server that the conformance tests run against.
type target struct {
	addr string
	dial func(network, address string, timeout time.Duration) (net.Conn, error)
}

// TestScriptsOnModel and TestScriptsOnServer run the same scripts, testdata/*.txt, whose expectations were recorded
// from ZooKeeper 3.8.0: what one of them accepts, the other accepts, but for the changes of later releases.
func TestScriptsOnModel(t *testing.T) {
	s := zktest.Start(t)
	runScripts(t, zktest.Modelled, target{addr, s.DialTimeout})
}

// ZKTEST_RECORD=1 in the environment makes it rewrite the expectations instead.
func TestScriptsOnServer(t *testing.T) {
	s := zkservertest.Start(t, zkserver.Config{NoSync: true, TickTime: time.Second})
	release, err := s.Version()
	if err != nil {
		t.Fatal(err)
	}
	runScripts(t, release, target{s.Addr(), net.DialTimeout})
}

func runScripts(t *testing.T, release string, on target) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, on, string(text))
			if os.Getenv("ZKTEST_RECORD") == "1" && on.addr != addr {
				if release != zktest.Modelled {
					t.Fatalf("recorded is %s, not %s", zktest.Modelled, release)
				}
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			compareLines(t, file, got, zktest.Expect(t, release, name, string(text)))
		})
	}
}

// compareLines reports the first line that differs: what follows it seldom means anything.
func compareLines(t *testing.T, file, got, want string) {
	t.Helper()
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		if g, w := line(gotLines, i), line(wantLines, i); g != w {
			t.Errorf("%s:%d:\n got %s\nwant %s\n  in %s", file, i+1, g, w, lastCommand(wantLines, i))
			return
		}
	}
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(end)"
}

func lastCommand(lines []string, i int) string {
	for i = min(i, len(lines)-1); i > 0; i-- {
		if isCommand(lines[i]) {
			break
		}
	}
	return lines[i]
}
