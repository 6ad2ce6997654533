// Package migrate shows the move from zk.Lock to dropin.Lock. It has two programs that differ only by an import and a name, and that may
// run at the same time.
package migrate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver"
)

const goroutines, turns = 10, 20 // goroutines has the same value as in the programs

// A service may be migrated one process at a time. Meanwhile some processes use zk.Lock, and the others use dropin.Lock.
func TestMixedFleetCountsCorrectly(t *testing.T) {
	server := childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true})
	dir := t.TempDir()
	file := filepath.Join(dir, "number")
	ctx := need.Within(t, 2*time.Minute)
	// The path ends in a separator, so that go build writes both programs into that directory.
	build := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator), "./before", "./after")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	fleet := []string{"before", "after", "before", "after"}
	var wg sync.WaitGroup
	for _, program := range fleet {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, filepath.Join(dir, program), server.Addr(), file, strconv.Itoa(turns))
			out, err := cmd.CombinedOutput()
			need.WantErr(t, program+": "+string(out), err, nil)
		})
	}
	wg.Wait()
	text := need.Get(os.ReadFile(file))(t)
	got, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if want := len(fleet) * goroutines * turns; got != want || err != nil {
		t.Errorf("the number is %q, want %d: turns were lost", text, want)
	}
}

func TestProgramsDifferByAnImportAndAName(t *testing.T) {
	before, after := code(t, "before"), code(t, "after")
	migrated := strings.Replace(before, "zk.NewLock(", "dropin.NewLock(", 1)
	const imported = "\t\"github.com/go-zookeeper/zk\"\n"
	migrated = strings.Replace(migrated, imported, imported+"\t\"github.com/tierlock/tierlock/zklock/dropin\"\n", 1)
	need.That(t, "before and after differ by more than the import of dropin and dropin.NewLock", migrated == after)
}

// The function code returns the text of a program without the comment at its top.
func code(t *testing.T, program string) string {
	t.Helper()
	text := need.Get(os.ReadFile(filepath.Join(program, "main.go")))(t)
	lines := strings.SplitAfter(string(text), "\n")
	start := slices.Index(lines, "package main\n")
	need.Must(t, fmt.Sprintf("%s has no package clause", program), start >= 0)
	return strings.Join(lines[start:], "")
}
