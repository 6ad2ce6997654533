package zklock

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
)

// parseConnect takes a connect string apart, as other clients of ZooKeeper do: the servers,
// with their ports, and the path below which all others are, "" for none.
func parseConnect(connect string) (servers []string, chroot string, err error) {
	if strings.Contains(connect, "://") {
		return nil, "", fmt.Errorf("connect string %q: want host:port,host:port/path, without a scheme", connect)
	}
	hosts, chroot, rooted := strings.Cut(connect, "/")
	if rooted {
		chroot = "/" + chroot
	}
	if chroot == "/" {
		chroot = ""
	}
	if strings.Contains(chroot, ",") {
		return nil, "", fmt.Errorf("connect string %q: want the path once, behind the last server", connect)
	}
	if chroot != "" {
		if err := checkPath(chroot); err != nil {
			return nil, "", fmt.Errorf("connect string %q: path %q: %w", connect, chroot, err)
		}
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

// address checks a server and completes its port.
func address(server string) (string, error) {
	if server == "" {
		return "", errors.New("a server is missing; want host:port,host:port")
	}
	complete := zk.FormatServers([]string{server})[0]
	host, port, err := net.SplitHostPort(complete)
	if err != nil {
		return "", fmt.Errorf("server %q: %w", server, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || n == 0 {
		return "", fmt.Errorf("server %q: want host:port", server)
	}
	return complete, nil
}
