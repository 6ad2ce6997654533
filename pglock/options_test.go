package pglock

import (
	"strings"
	"testing"
	"time"
)

func TestBadOptionsAreNamed(t *testing.T) {
	for _, tt := range []struct {
		option Option
		name   string // what the error has to mention
	}{
		{WithLeaseTTL(0), "lease TTL 0s"},
		{WithLeaseTTL(-time.Second), "lease TTL -1s"},
		{WithLeaseTTL(time.Second + time.Nanosecond), "want whole milliseconds"},
		{WithLeaseTTL(1 << 62), "want 1s to"},
		{WithLeaseMargin(-time.Second), "lease margin -1s"},
		{WithLeaseMargin(8 * time.Second), "lease margin 8s"}, // of the default of 15 s
		{WithLogger(nil), "nil logger"},
		{WithLabel(strings.Repeat("x", 257)), "label of 257 bytes"},
		{WithLabel("\xff"), "label is not"},
		{WithLabel("a\nb"), "not printed"},
		{nil, "option of type <nil>"},
		{strange{}, "option of type pglock.strange"},
	} {
		if _, _, err := newOptions([]Option{tt.option}); err == nil || !strings.Contains(err.Error(), tt.name) {
			t.Errorf("%v, want %q", err, tt.name)
		}
	}
}

// strange is an option of somebody else.
type strange struct{}

func (strange) ForDial() {}
