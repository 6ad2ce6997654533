package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestRelayCarriesUntilItIsCut(t *testing.T) {
	r := newTestRelay(t)
	conn := dial(t, r)
	need.That(t, "a new relay carries nothing", echoes(t, conn))
	r.Cut()
	need.That(t, "carries after the cut", !echoes(t, conn) && !echoes(t, dial(t, r)))
	r.Heal()
	need.That(t, "carries nothing once healed", echoes(t, dial(t, r)))
}

func TestMuteRelayKeepsItsConnections(t *testing.T) {
	r := newTestRelay(t)
	conn := dial(t, r)
	r.Mute()
	need.Get(io.WriteString(conn, "x"))(t)
	need.OK(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	need.WantErr(t, "read while mute", need.ErrOf(conn.Read(make([]byte, 1))), os.ErrDeadlineExceeded)
	r.Heal()
	need.OK(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
	need.WantErr(t, "read once healed", need.ErrOf(conn.Read(make([]byte, 1))), nil)
}

func TestTheLastRequestIsAnsweredLateAndNoOtherPasses(t *testing.T) {
	r := newTestRelay(t)
	conn := dial(t, r)
	r.MuteAnswers()
	passed := r.LastRequest()
	need.Get(io.WriteString(conn, "x"))(t)
	<-passed
	need.Get(io.WriteString(conn, "y"))(t)
	r.Answer()
	got := make([]byte, 2)
	need.OK(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
	need.Equal(t, "the answer to the last request", string(got[:need.Get(conn.Read(got))(t)]), "x")
	need.OK(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	need.WantErr(t, "read after it", need.ErrOf(conn.Read(got)), os.ErrDeadlineExceeded)
	r.Heal()
	need.OK(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
	need.Equal(t, "the answer after healing", string(got[:need.Get(conn.Read(got))(t)]), "y")
}

func TestFlightsDoNotWaitForOneAnother(t *testing.T) {
	const delay, flights = 50 * time.Millisecond, 100
	near, remote := pumped(t, delay)
	start := time.Now()
	go func() {
		for i := range flights {
			_, _ = near.Write([]byte{byte(i), byte(i)}) // Write returns when the relay has read the data
		}
	}()
	for i := range flights {
		buffer := make([]byte, 3)
		n, err := remote.Read(buffer)
		need.Must(t, fmt.Sprintf("flight %d: got %v, %v", i, buffer[:n], err), err == nil && bytes.Equal(buffer[:n], []byte{byte(i), byte(i)}))
	}
	need.Between(t, fmt.Sprintf("%d flights took", flights), time.Since(start), delay, flights*delay/2)
}

func TestEndArrivesAfterWhatIsUnderWay(t *testing.T) {
	const delay = 50 * time.Millisecond
	for _, last := range []string{"last", ""} {
		near, remote := pumped(t, delay)
		start := time.Now()
		_, _ = io.WriteString(near, last)
		_ = near.Close()
		got, err := io.ReadAll(remote)
		if took := time.Since(start); string(got) != last || err != nil || took < delay {
			t.Errorf("got %q, %v after %v, want %q and the end after %v", got, err, took, last, delay)
		}
	}
}

// pumped returns the two ends of a connection through a relay. Data passes from near to remote only.
func pumped(t *testing.T, delay time.Duration) (near, remote net.Conn) {
	t.Helper()
	r := need.Get(New(nil, delay))(t)
	near, from := net.Pipe()
	to, remote := net.Pipe()
	r.tasks.Go(func() { r.pump(to, from, &r.requests, r.asked) })
	t.Cleanup(func() {
		_, _ = near.Close(), remote.Close()
		_ = r.Close()
	})
	return near, remote
}

// newTestRelay returns a relay to an echo server.
func newTestRelay(t *testing.T) *Relay {
	t.Helper()
	server := need.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	r := need.Get(New([]string{server.Addr().String()}, 0))(t)
	t.Cleanup(func() { need.WantErr(t, "Close", r.Close(), nil) })
	return r
}

func dial(t *testing.T, r *Relay) net.Conn {
	t.Helper()
	conn := need.Get(net.Dial("tcp", r.Addrs()[0]))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func echoes(t *testing.T, conn net.Conn) bool {
	t.Helper()
	need.OK(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
	if _, err := io.WriteString(conn, "x"); err != nil {
		return false
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	need.That(t, "neither an answer nor an end", !errors.Is(err, os.ErrDeadlineExceeded))
	return err == nil
}
