package verdict

import (
	"context"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/stress/internal/clock"
)

// fault is a fault. It happens while one process owns the lock and another process waits for it.
type fault struct {
	name  string
	title string
	text  string
	// strike injects the fault, and returns when the fault is healed. It also returns a text that describes its random choices.
	strike func(ctx context.Context, t *trial) (choice string, err error)
}

var faults = []fault{
	{"stopped", "Owner stopped", "The owner gets SIGSTOP, and SIGCONT only after its lease has ended.", stopOwner},
	{"cut", "Owner cut off", "In odd trials the network drops all packets between the owner and the server. In even trials " +
		"the owner's connections are closed, and new connections are refused.", cutOwner},
	{"server-stopped", "Server stopped", "The server gets SIGSTOP, and later SIGCONT.", stopServer},
	{"server-killed", "Server killed", "The server is killed with SIGKILL and starts again with its data.", killServer},
	{"answers", "Answers lost", "The owner's requests reach the server, but the connection ends before the answers arrive. In the first " +
		"trial this happens while the owner acquires the lock, in the second while it owns the lock, in the third while it releases the lock, " +
		"and so on.", loseAnswers},
	{"late", "Renewal answered late", "The server answers one renewal late. After this answer the owner is cut off. If a library counts its " +
		"lease from the answer and not from the request, the lease ends too late by the delay.", answerLate},
}

func stopOwner(ctx context.Context, t *trial) (string, error) {
	process := t.owner.Cmd.Process
	if err := child.Pause(process); err != nil {
		return "", err
	}
	long := t.wait(ctx, lease*6/5, lease*9/5)
	t.woke = clock.Now()
	return fmt.Sprintf("for %.1f s", long), child.Resume(process)
}

func cutOwner(ctx context.Context, t *trial) (string, error) {
	defer t.relay.Heal()
	how := "mute"
	if t.number%2 == 0 {
		how = "refused"
		t.relay.Cut()
	} else {
		t.relay.Mute()
	}
	return fmt.Sprintf("%s for %.1f s", how, t.wait(ctx, lease*9/5, lease*12/5)), nil
}

func stopServer(ctx context.Context, t *trial) (string, error) {
	if err := t.cluster.Pause(); err != nil {
		return "", err
	}
	long := t.wait(ctx, lease/2, lease*9/5)
	return fmt.Sprintf("for %.1f s", long), t.cluster.Resume()
}

func killServer(ctx context.Context, t *trial) (string, error) {
	t.cluster.Members[0].Kill()
	long := t.wait(ctx, 0, lease/2)
	return fmt.Sprintf("for %.1f s and its start", long), t.cluster.Restart(ctx)
}

// loseAnswers keeps answers from reaching the owner. In one of three trials, it starts before the owner has acquired the lock.
func loseAnswers(ctx context.Context, t *trial) (choice string, err error) {
	defer t.relay.Heal()
	t.relay.MuteAnswers()
	switch t.number % 3 {
	case 1:
		choice = "while it acquires"
		t.owner.order(acquire)
	case 2:
		choice = "while it owns"
	case 0:
		choice = "while it releases"
		t.owner.order(release)
	}
	long := t.wait(ctx, lease/10, lease/2)
	t.relay.Cut()
	return fmt.Sprintf("%s, for %.1f s", choice, long), nil
}

// answerLate delays the answer to a renewal. It shows whether a lock counts its deadline from the answer instead of from the request.
func answerLate(ctx context.Context, t *trial) (string, error) {
	defer t.relay.Heal()
	t.relay.MuteAnswers()
	select {
	case <-t.relay.LastRequest():
	case <-time.After(lease):
		return "", fmt.Errorf("the owner does not renew within %v", lease)
	}
	late := t.wait(ctx, lease/2, lease*6/10)
	t.relay.Answer()
	clock.Sleep(lease/20, ctx.Done())
	t.relay.Mute()
	return fmt.Sprintf("late by %.1f s, cut off for %.1f s", late, t.wait(ctx, lease*8/5, lease*2)), nil
}

// The method wait waits for a random time between low and high, and returns that time in seconds.
func (t *trial) wait(ctx context.Context, low, high time.Duration) float64 {
	long := low + time.Duration(t.random.Int64N(int64(high-low)))
	clock.Sleep(long, ctx.Done())
	return long.Seconds()
}
