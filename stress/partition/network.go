package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// network is a hub. The hub is the namespace of this process, and it is connected to the namespace of each server. Packets of the hub
// itself reach every server. Packets between two servers are either forwarded or silently dropped.
type network struct {
	dropped map[way]bool
}

// retransmission is how long the kernel of a server waits before it sends dropped data again. It does so again after three times as
// long, and after seven times as long.
const retransmission = 280 * time.Millisecond

// way is a direction from one server to another. Servers are counted from 1.
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

// privateNames covers the machine's list of namespaces with a directory that only this process and its children see.
func privateNames() error {
	dir := "/run/netns"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		dir = "/run" // this user may not write there, so cover all of /run
	}
	out, err := exec.Command("mount", "-t", "tmpfs", "tierlock", dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mount over %s: %w: %s", dir, err, out)
	}
	return nil
}

// set says which directions are dropped from now on. All others are forwarded.
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

// String returns the routing rule that drops the packets in this direction. The rule does not match packets of the hub itself, because
// these do not arrive on a wire.
func (w way) String() string { return fmt.Sprintf("iif %s to %s blackhole", wire(w.from), host(w.to)) }

// The function ip runs commands of ip(8) in order. Each line is a command.
func ip(commands string, options ...string) error {
	cmd := exec.Command("ip", append(options, "-batch", "-")...)
	cmd.Stdin = strings.NewReader(commands)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, out)
	}
	return nil
}
