package notice

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
)

func TestLossIsToldOnce(t *testing.T) {
	lost := second.Lost(second.ByLease, "a test")
	for _, c := range []struct {
		held   bool
		causes []error
		want   int
	}{
		{true, []error{nil, errors.New("not removed"), lost, lost}, 1},
		{false, []error{lost}, 0},
	} {
		var l Loss
		if c.held {
			l.Held()
		}
		told := 0
		for _, cause := range c.causes {
			l.Tell(cause, func() { told++ })
		}
		need.Equal(t, fmt.Sprintf("held %v, %v: told times", c.held, c.causes), told, c.want)
	}
}
