package command

import (
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

func TestScreenSaysThatNothingIsGranted(t *testing.T) {
	q := &tier.GracePeriodError{Until: time.Now(), Reason: "the server is new"}
	waits := []inspect.Contender{{Node: "first", Kind: inspect.KindTierlock, State: inspect.InGracePeriod, Readable: true}}
	s := &screen{path: "/jobs", store: "Store"}
	text := strings.Join(s.lines(inspect.Sight{
		GracePeriod: q, Complete: true,
		Queues: []*inspect.Queue{{Path: "/jobs/a", Contenders: waits, GracePeriod: q}, {Path: "/jobs/b", GracePeriod: q}},
	}, 24), "\n")
	need.Has(t, "the screen", text,
		"Ctrl-C ends; "+q.Error(), "\n/jobs/a  1     -         none yet\n", "\n/jobs/b  -     -         free\n")
}

func TestASemaphoreIsShownAsOne(t *testing.T) {
	q := &inspect.Queue{Path: "/pool/db", Semaphore: &inspect.Semaphore{
		Permits: inspect.Permits{All: 5, InUse: 4}, Queue: []inspect.Contender{{Node: "first", State: inspect.Next}},
	}}
	for i, permits := range []int{2, 1, 1} {
		q.Semaphore.Add(&inspect.Contender{Node: "node", Readable: true, Host: "h", PID: 7 + i%2}, permits)
	}
	s := &screen{path: "/", store: "Store"}
	text := strings.Join(s.lines(inspect.Sight{Complete: true, Queues: []*inspect.Queue{q}}, 24), "\n")
	need.Has(t, "the screen", text, "\n/pool/db  1     -         4 of 5 permits in use: 3 by h pid 7, 1 by h pid 8\n")
	need.Equal(t, "lines of it", strings.Count(text, "/pool/db"), 1)
	event := inspect.Event{What: inspect.Taken, Path: q.Path, Semaphore: q.Semaphore, Waiting: 1}
	const want = "/pool/db 4 of 5 permits in use: 3 by h pid 7, 1 by h pid 8; 1 process waits"
	need.Equal(t, "the event", eventText(event, "Store"), want)
}
