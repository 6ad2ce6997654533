package main

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

func TestRelayCarriesUntilItIsCut(t *testing.T) {
	r := newTestRelay(t)
	conn := dial(t, r)
	if !echoes(t, conn) {
		t.Fatal("a new relay carries nothing")
	}
	r.cut()
	if echoes(t, conn) || echoes(t, dial(t, r)) {
		t.Error("carries after the cut")
	}
	r.heal()
	if !echoes(t, dial(t, r)) {
		t.Error("carries nothing once healed")
	}
}

func TestMuteRelayKeepsItsConnections(t *testing.T) {
	r := newTestRelay(t)
	conn := dial(t, r)
	r.mute()
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read while mute: got %v, want silence", err)
	}
	r.heal()
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("read once healed: got %v, want what was sent while mute", err)
	}
}

// newTestRelay is a relay to a server that answers what it is sent.
func newTestRelay(t *testing.T) *relay {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	r, err := newRelay([]string{server.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func dial(t *testing.T, r *relay) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", r.addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func echoes(t *testing.T, conn net.Conn) bool {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "x"); err != nil {
		return false
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("neither an answer nor an end")
	}
	return err == nil
}
