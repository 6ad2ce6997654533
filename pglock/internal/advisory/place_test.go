package advisory

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/internal/second"
)

func TestNameSaysWhoItIs(t *testing.T) {
	s := &Store{self: second.Describe("night run")}
	s.self.Host = "db-7"
	p := place{pid: "31", granted: true, name: "tierlock 99 1 " + s.about(1500*time.Millisecond)}
	want := second.Contender{ID: "31", Token: 99, Host: "db-7", PID: os.Getpid(), Label: "night run", Asked: true}
	want.Linger, want.Since = 1500*time.Millisecond, p.describe().Since
	if got := p.describe(); got != want || time.Since(want.Since) > time.Minute {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	p.granted = false
	want.Token, want.Asked = 0, false
	need.Equal(t, "one that waits", p.describe(), want)
	p.name = p.name[:strings.Index(p.name, "night")+2] // as a server cuts it
	if got := p.describe(); got.Label != "ni" || got.PID != os.Getpid() {
		t.Errorf("cut: %+v", got)
	}
	for _, name := range []string{"", "psql", "tierlock", "tierlock ", "tierlock x y"} {
		need.Equal(t, name, (place{pid: "31", name: name}).describe(), (second.Contender{ID: "31"}))
	}
}

func TestPlacesAreInTheOrderOfTokensThenOfTheWait(t *testing.T) {
	row := func(pid, shared, granted, name string) [][]byte {
		return [][]byte{[]byte("-5"), []byte(pid), []byte(shared), []byte(granted), []byte(name)}
	}
	places := places([][][]byte{
		row("1", "t", "t", "tierlock 30 0 1 1 1 h "),
		row("2", "t", "t", "tierlock 9 0 1 1 1 h "),
		row("2", "f", "t", "tierlock 9 0 1 1 1 h "), // for a moment, as it becomes a reader
		row("7", "f", "f", "tierlock 0 0 1 1 1 h "),
		row("6", "t", "f", "tierlock 0 0 1 1 1 h "),
	})
	var order string
	for _, p := range places["-5"] {
		order += p.pid
		need.Equal(t, "whether "+p.pid+" reads", p.reads, p.pid == "1" || p.pid == "6")
	}
	need.Equal(t, "order", order, "2176")
}
