package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestJournalSurvivesATornEnd(t *testing.T) {
	dir := t.TempDir()
	first, second := span(1, 5, 10, 20), span(1, 6, 30, 40)
	open := killed(1, 6, 30, 35)
	j, err := createJournal(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []hold{first, open} {
		if err := j.write(&h); err != nil {
			t.Fatal(err)
		}
	}
	checkJournals(t, dir, first, open)
	if err := j.write(&second); err != nil {
		t.Fatal(err)
	}
	if _, err := j.file.WriteString(`{"Process":1,"ID":31,"Pa`); err != nil {
		t.Fatal(err)
	}
	checkJournals(t, dir, first, second)
}

func checkJournals(t *testing.T, dir string, want ...hold) {
	t.Helper()
	got, err := readJournals(dir)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestGarbageInAJournalIsAnError(t *testing.T) {
	name := filepath.Join(t.TempDir(), "journal-1")
	if err := os.WriteFile(name, []byte("garbage\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if holds, err := readJournals(filepath.Dir(name)); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("got %v, %v, want an error with the name of the file", holds, err)
	}
}
