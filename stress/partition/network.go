package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// network is a hub that is connected to each server's own namespace. The hub is the namespace of this process. Its own packets reach
// every server. Packets between servers are forwarded, or silently dropped.
type network struct {
	dropped map[way]bool
}

// retransmission is when a server's kernel first sends dropped data again; it does so again after three and seven times as long.
const retransmission = 280 * time.Millisecond

// way is one direction between two servers, which count from 1.
type way struct{ from, to int }

func newNetwork(servers int) (*network, error) {
	if err := privateNames(); err != nil {
		return nil, err
	}
	var setup strings.Builder
	fmt.Fprintln(&setup, "link set lo up")
	for id := 1; id <= servers; id++ {
		fmt.Fprintf(&setup, "netns add %s\n", namespace(id))
		fmt.Fprintf(&setup, "link add %s type veth peer name hub netns %s\n", wire(id), namespace(id))
		fmt.Fprintf(&setup, "address add 10.77.%d.1/24 dev %s\n", id, wire(id))
		fmt.Fprintf(&setup, "link set %s up\n", wire(id))
	}
	if err := ip(setup.String()); err != nil {
		return nil, err
	}
	for id := 1; id <= servers; id++ {
		var setup strings.Builder
		fmt.Fprintln(&setup, "link set lo up")
		fmt.Fprintf(&setup, "address add %s/24 dev hub\n", host(id))
		fmt.Fprintln(&setup, "link set hub up")
		fmt.Fprintf(&setup, "route add 10.77.0.0/16 via 10.77.%d.1 rto_min %dms\n", id, retransmission.Milliseconds())
		if err := ip(setup.String(), "-netns", namespace(id)); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return nil, err
	}
	return &network{dropped: map[way]bool{}}, nil
}

func namespace(id int) string { return fmt.Sprintf("server%d", id) }
func wire(id int) string      { return fmt.Sprintf("wire%d", id) }
func host(id int) string      { return fmt.Sprintf("10.77.%d.2", id) }

// privateNames hides the machine's namespaces behind a directory that only this process and its children see.
func privateNames() error {
	dir := "/run/netns"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		dir = "/run" // not ours to write to, so cover all of it
	}
	out, err := exec.Command("mount", "-t", "tmpfs", "tierlock", dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mount over %s: %w: %s", dir, err, out)
	}
	return nil
}

// set drops exactly the traffic in these directions from now on.
func (n *network) set(ways ...way) error {
	var change strings.Builder
	next := map[way]bool{}
	for _, w := range ways {
		next[w] = true
		if !n.dropped[w] {
			fmt.Fprintln(&change, "rule add", w)
		}
	}
	for w := range n.dropped {
		if !next[w] {
			fmt.Fprintln(&change, "rule del", w)
		}
	}
	n.dropped = next
	return ip(change.String())
}

// String returns the routing rule that drops traffic in this direction. It does not match packets of the hub itself, which arrive on no
// wire.
func (w way) String() string { return fmt.Sprintf("iif %s to %s blackhole", wire(w.from), host(w.to)) }

// ip runs commands of ip(8), one a line, in order.
func ip(commands string, options ...string) error {
	cmd := exec.Command("ip", append(options, "-batch", "-")...)
	cmd.Stdin = strings.NewReader(commands)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, out)
	}
	return nil
}
