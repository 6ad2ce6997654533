package evidence

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestJournalSurvivesATornEnd(t *testing.T) {
	dir := t.TempDir()
	first := Hold{Process: 1, ID: 10, Token: 5, Got: 10, Valid: 20, Over: 21}
	second := Hold{Process: 1, ID: 30, Token: 6, Got: 30, Valid: 40, Over: 41}
	open := second
	open.Valid, open.Over = 35, 0
	j, err := CreateJournal(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []Hold{first, open} {
		if err := j.Write(&h); err != nil {
			t.Fatal(err)
		}
	}
	checkJournals(t, dir, first, open)
	if err := j.Write(&second); err != nil {
		t.Fatal(err)
	}
	if _, err := j.file.WriteString(`{"Process":1,"ID":31,"Pa`); err != nil {
		t.Fatal(err)
	}
	checkJournals(t, dir, first, second)
}

func checkJournals(t *testing.T, dir string, want ...Hold) {
	t.Helper()
	got, err := ReadJournals(dir)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestGarbageInAJournalIsAnError(t *testing.T) {
	name := filepath.Join(t.TempDir(), "journal-1")
	if err := os.WriteFile(name, []byte("garbage\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if holds, err := ReadJournals(filepath.Dir(name)); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("got %v, %v, want an error with the name of the file", holds, err)
	}
}
