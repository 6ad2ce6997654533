package store

import "testing"

func TestParseTraffic(t *testing.T) {
	const srvr = "Zookeeper version: 3.8.0, built on 2024-12-29 17:54 UTC\nLatency min/avg/max: 0/0.0/0\n" +
		"Received: 40\nSent: 2\nConnections: 1\nOutstanding: 0\nZxid: 0x1f\nMode: standalone\nNode count: 5\n"
	if got, ok := parseTraffic(srvr); got != (Traffic{Packets: 42, Writes: 31}) || !ok {
		t.Errorf("got %+v, %t, want 42 packets, 31 writes", got, ok)
	}
	if got, ok := parseTraffic("srvr is not executed because it is not in the whitelist.\n"); ok {
		t.Errorf("refusal: got %+v", got)
	}
}
