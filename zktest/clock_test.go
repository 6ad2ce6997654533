package zktest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/zktest"
)

func TestServerAndClientsAreInOneBubble(t *testing.T) {
	const inside, outside = "was made outside of the synctest bubble", "is dialed outside of it"
	made := map[string]*zktest.Server{}
	synctest.Test(t, func(t *testing.T) { made[outside] = zktest.NewServer(zktest.Config{}) })
	if got := panicOf(func() { _, _ = made[outside].DialTimeout("tcp", addr, time.Second) }); !strings.Contains(got, outside) {
		t.Errorf("made in a bubble, dialed outside: got %q, want a panic with %q", got, outside)
	}
	made[inside] = zktest.Start(t)
	synctest.Test(t, func(t *testing.T) {
		if got := panicOf(func() { _, _ = made[inside].DialContext(t.Context(), "tcp", addr) }); !strings.Contains(got, inside) {
			t.Errorf("made outside, dialed in a bubble: got %q, want a panic with %q", got, inside)
		}
	})
	if got := panicOf(func() { connect(t, made[inside], 10*time.Second, addr).Close() }); got != "" {
		t.Errorf("made outside, dialed outside: got a panic with %q", got)
	}
}

func panicOf(f func()) (what string) {
	defer func() {
		if r := recover(); r != nil {
			what = fmt.Sprint(r)
		}
	}()
	f()
	return ""
}
