package load

import (
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestThreadsThatWantAProcessorAreCounted(t *testing.T) {
	for text, want := range map[string]int{"12.90 11.96 9.18 10/204 4711\n": 9, "0.00 0.01 0.05 1/99 12": 0, "": 0, "0 0 0 x": 0} {
		need.Equal(t, text, runnableIn(text), want)
	}
}
