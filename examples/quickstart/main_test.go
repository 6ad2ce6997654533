package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/internal/test/zkserver/zkservertest"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestMain(m *testing.M) { zkservertest.Main(m, main) }

func TestNoTurnIsLostAndTheWaiterIsShown(t *testing.T) {
	t.Run("ZooKeeper", func(t *testing.T) {
		twoTerminals(t, childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true}).Addr())
	})
	t.Run("tierlock dev", func(t *testing.T) {
		addr := need.Get(zktest.Start(t).Listen("127.0.0.1:0"))(t)
		twoTerminals(t, addr.String())
	})
}

func twoTerminals(t *testing.T, server string) {
	dir := t.TempDir()
	var processes sync.WaitGroup
	for range 2 {
		processes.Go(func() {
			program := zkservertest.Program(t, "ZK_SERVERS="+server, "TMPDIR="+dir)
			program.Args = append(program.Args, "-turns", "4")
			out, err := program.CombinedOutput()
			need.WantErr(t, string(out), err, nil)
			need.That(t, "the other process was not seen to wait: "+string(out), strings.Contains(string(out), "waits for it"))
		})
	}
	processes.Wait()
	wantTurns(t, dir)
}

func wantTurns(t *testing.T, dir string) {
	t.Helper()
	text, _ := os.ReadFile(filepath.Join(dir, "quickstart"))
	need.Equal(t, "the number after 24 turns", string(text), "24")
}
