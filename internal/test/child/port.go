package child

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort finds a port of the loopback below the range from which Linux and macOS take the local ports of outgoing connections. A port
// within that range would be a problem: a client that dials a stopped server again and again can get the very port that it dials as its
// local port. Then the client connects to itself, and the server cannot start again on that port.
func FreePort() (int, error) {
	const low, high, tries = 12000, 32000, 100
	for range tries {
		port := low + rand.IntN(high-low)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port")
}
