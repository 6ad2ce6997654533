package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && !strings.HasPrefix(os.Args[1], "-") {
		main() // as a process started by demo
		return
	}
	os.Exit(m.Run())
}

func TestNoTurnIsLost(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	zkservertest.Check(t, demo(t.Context(), out, ""))
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"started a private ZooKeeper", ": 0 -> 1\n", ": 23 -> 24\n", "the number is 24 after 24 turns\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the output does not say %q:\n%s", want, text)
		}
	}
}
