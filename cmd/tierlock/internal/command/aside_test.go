package command

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

// A reader reads only when the test allows it.
type reader struct {
	may  chan struct{}
	text bytes.Buffer
}

func (r *reader) Write(p []byte) (int, error) {
	<-r.may
	return r.text.Write(p)
}

func newReader() (*reader, *invocation) {
	r := &reader{may: make(chan struct{})}
	in := newInvocation(nil, nil, r)
	in.speakAside()
	return r, in
}

func TestNobodyWaitsForTheReaderOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, in := newReader()
		begun := time.Now()
		for i := range 1000 {
			in.say("message %d", i)
		}
		need.Equal(t, "waited for", time.Since(begun), 0)
		close(r.may)
		in.flush()
		lines := strings.Split(strings.TrimSpace(r.text.String()), "\n")
		for i, line := range lines {
			if want := fmt.Sprint("tierlock: message ", i); line != want {
				t.Fatalf("line %d is %q, want %q", i, line, want)
			}
		}
		need.Equal(t, "lines", len(lines), 1000)
	})
}

func TestOfTooManyMessagesTheLastAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, in := newReader()
		in.say("the first")
		synctest.Wait() // now the first message is about to be written
		const long, many = 1000, 1000
		for i := range many {
			in.say("%04d %s", i, strings.Repeat("x", long))
		}
		close(r.may)
		in.flush()
		lines := strings.Split(strings.TrimSpace(r.text.String()), "\n")
		kept := len(lines) - 2
		need.Between(t, "bytes that are kept", kept*long, mostAside/2, mostAside)
		out := fmt.Sprintf("tierlock: %d messages were dropped here, because the output was not read in time", many-kept)
		need.List(t, "it begins with", lines[:2], "tierlock: the first", out)
		for i, line := range lines[2:] {
			if want := fmt.Sprintf("tierlock: %04d ", many-kept+i); !strings.HasPrefix(line, want) {
				t.Fatalf("%q, want %q", line[:20], want)
			}
		}
	})
}

func TestTheEndWaitsForTheReaderOnlySoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, in := newReader()
		in.say("the last")
		begun := time.Now()
		in.flush()
		need.Equal(t, "took", time.Since(begun), lastWords)
		close(r.may)
		in.flush()
		need.Equal(t, "took", time.Since(begun), lastWords)
		need.Equal(t, "said", r.text.String(), "tierlock: the last\n")
	})
}
