package zklock

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
)

// defaultPort is ZooKeeper's clientPort in every example of a configuration.
const defaultPort = "2181"

// parseConnect takes a connect string apart, as other clients of ZooKeeper do: the servers,
// with their ports, and the path below which all others are, "" for none. An error says what
// to write instead.
func parseConnect(connect string) (servers []string, chroot string, err error) {
	if strings.Contains(connect, "@") { // which is not for logs
		return nil, "", errors.New("connect string with an @: credentials are given to WithAuth")
	}
	hosts, chroot, err := splitConnect(strings.TrimSpace(connect))
	if err != nil {
		return nil, "", fmt.Errorf("connect string %q: %w", connect, err)
	}
	for _, host := range strings.Split(hosts, ",") {
		server, err := address(strings.TrimSpace(host))
		if err != nil {
			return nil, "", fmt.Errorf("connect string %q: %w", connect, err)
		}
		servers = append(servers, server)
	}
	return servers, chroot, nil
}

func splitConnect(connect string) (hosts, chroot string, err error) {
	if connect == "" {
		return "", "", errors.New("it is empty; want host:port,host:port/path")
	}
	if scheme, rest, ok := strings.Cut(connect, "://"); ok {
		return "", "", fmt.Errorf("it has no scheme such as %s; write %q", scheme, rest)
	}
	hosts, path, _ := strings.Cut(connect, "/")
	if path == "" { // also behind a slash, as with other clients
		return hosts, "", nil
	}
	chroot = "/" + path
	if strings.Contains(path, ",") || strings.Contains(path, ":") && strings.ContainsFunc(path, separates) {
		return "", "", errors.New("want the path once, behind the last server")
	}
	if short := strings.TrimRight(chroot, "/"); short != chroot {
		return "", "", fmt.Errorf("a slash at the end; write %q", hosts+short)
	}
	if err := checkPath(chroot); err != nil {
		return "", "", fmt.Errorf("path %q: %w", chroot, err)
	}
	return hosts, chroot, nil
}

// address checks a server and completes its port.
func address(server string) (string, error) {
	if server == "" {
		return "", errors.New("a server is missing; want host:port,host:port")
	}
	if strings.ContainsFunc(server, separates) {
		return "", fmt.Errorf("commas separate servers; write %q", strings.Join(strings.FieldsFunc(server, separates), ","))
	}
	if ip, err := netip.ParseAddr(server); err == nil && ip.Is6() {
		return "", fmt.Errorf("server %q: IPv6 addresses go in brackets, as in [::1]:%s", server, defaultPort)
	}
	complete := server
	if !strings.Contains(server, ":") || strings.HasSuffix(server, "]") {
		complete += ":" + defaultPort
	}
	host, port, err := net.SplitHostPort(complete)
	if err != nil {
		return "", fmt.Errorf("server %q: want host:port, or [address]:port for IPv6: %w", server, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || n == 0 {
		return "", fmt.Errorf("server %q: want host:port, with a port from 1 to 65535", server)
	}
	return complete, nil
}

// separates reports whether r is what somebody may have put between servers.
func separates(r rune) bool { return r == ';' || r == '|' || unicode.IsSpace(r) }
