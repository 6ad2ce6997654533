package evidence

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestJournalSurvivesATornEnd(t *testing.T) {
	dir := t.TempDir()
	first := Hold{Process: 1, ID: 10, Token: 5, Got: 10, Valid: 20, Over: 21}
	second := Hold{Process: 1, ID: 30, Token: 6, Got: 30, Valid: 40, Over: 41}
	open := second
	open.Valid, open.Over = 35, 0
	j := need.Get(CreateJournal(dir, 1))(t)
	for _, h := range []Hold{first, open} {
		need.OK(t, j.Write(&h))
	}
	checkJournals(t, dir, first, open)
	need.OK(t, j.Write(&second))
	need.Get(j.file.WriteString(`{"Process":1,"ID":31,"Pa`))(t)
	checkJournals(t, dir, first, second)
}

func checkJournals(t *testing.T, dir string, want ...Hold) {
	t.Helper()
	got := need.Get(ReadJournals(dir))(t)
	need.That(t, fmt.Sprintf("got %+v, want %+v", got, want), reflect.DeepEqual(got, want))
}

func TestGarbageInAJournalIsAnError(t *testing.T) {
	name := filepath.Join(t.TempDir(), "journal-1")
	need.OK(t, os.WriteFile(name, []byte("garbage\n"), 0o600))
	need.WantMention(t, need.ErrOf(ReadJournals(filepath.Dir(name))), name)
}
