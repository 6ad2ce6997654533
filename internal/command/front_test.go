//go:build linux || darwin || freebsd || windows

package command

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/need"
)

// The keeper may be there and have failed to end the command.
func TestFrontThatWasStoppedAsksOnce(t *testing.T) {
	null := need.Get(os.OpenFile(os.DevNull, os.O_WRONLY, 0))(t)
	defer null.Close()
	f := &front{line: line{out: null}, ask: stopped(), deadline: stopped(), until: time.Now().Add(-time.Hour)}
	need.That(t, "the keeper is not asked", f.late())
	f.hear(fmt.Sprintf("for %d %d", -time.Hour, f.question))
	need.That(t, "the keeper is asked again, though the lock is not ours any more", !f.late())
}
