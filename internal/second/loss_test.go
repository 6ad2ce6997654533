package second

import (
	"errors"
	"fmt"
	"testing"
)

func TestCauseOfALoss(t *testing.T) {
	for _, c := range []struct {
		err  error
		want LossCause
	}{
		{Lost(ByDeletion, "by an operator"), ByDeletion},
		{fmt.Errorf("release: %w", Lost(BySession, "it has expired")), BySession},
		{fmt.Errorf("%w: of the program", ErrClosed), ByClose},
		{errors.New("another"), ByOther},
	} {
		if got := CauseOf(c.err); got != c.want {
			t.Errorf("the cause of %q is %q, want %q", c.err, got, c.want)
		}
	}
}
