package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/internal/test/zkserver/zkservertest"
)

func TestWrongServerIsAnErrorInTime(t *testing.T) { zkservertest.WrongServer(t, run) }

func TestMain(m *testing.M) { zkservertest.Main(m, main) }

func TestNoTurnIsLost(t *testing.T) {
	server := childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true})
	dir := t.TempDir()
	const processes = 2
	var wg sync.WaitGroup
	for range processes {
		wg.Go(func() {
			out, err := zkservertest.Program(t, "ZK_SERVERS="+server.Addr(), "DIR="+dir).CombinedOutput()
			need.WantErr(t, string(out), err, nil)
			t.Logf("%s", out)
		})
	}
	wg.Wait()
	for i := range keys {
		key := fmt.Sprint("customer ", i)
		text, _ := os.ReadFile(filepath.Join(dir, key))
		need.Equal(t, "the number of "+key+", of turns", string(text), fmt.Sprint(processes))
	}
}
