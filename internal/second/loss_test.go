package second

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
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
		need.Equal(t, fmt.Sprintf("the cause of %q", c.err), CauseOf(c.err), c.want)
	}
}
