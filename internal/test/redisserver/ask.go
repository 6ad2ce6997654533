package redisserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// patience bounds each query, because a paused server accepts a query and never answers.
const patience = time.Second

// Serves reports whether the server answers with its directory, and has loaded its data. Another program at the address would not have that
// directory.
func (p *program) Serves() bool {
	answer, err := Ask(p.addr, "CONFIG", "GET", "dir")
	return err == nil && len(answer) == 2 && answer[1] == p.dir && p.loaded()
}

func (p *program) loaded() bool {
	answer, err := Ask(p.addr, "INFO", "persistence")
	return err == nil && len(answer) == 1 && strings.Contains(answer[0], "\nloading:0\r")
}

// Mode returns "leader" or "follower". It returns an error if the server does not answer, or if it is a replica without a connection to its
// primary.
func (p *program) Mode() (string, error) {
	role, err := Ask(p.addr, "ROLE")
	switch {
	case err != nil:
		return "", err
	case role[0] == "master":
		return "leader", nil
	case len(role) > 3 && role[3] == "connected":
		return "follower", nil
	}
	return "", fmt.Errorf("redisserver: %s: not in touch with its primary", p.addr)
}

// Version returns the server's release, such as "7.0.15". It returns an error if the server does not answer.
func (p *program) Version() (string, error) {
	info, err := Ask(p.addr, "INFO", "server")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(info[0]) {
		if version, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return strings.TrimSpace(version), nil
		}
	}
	return "", fmt.Errorf("redisserver: %s does not say its version", p.addr)
}

// Ask sends one command on a connection of its own, and returns the strings and numbers of the answer. Arrays within arrays are flattened
// in order.
func Ask(addr string, command ...string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return ask(ctx, conn, command...)
}

// The function ask sends one command, and returns its answer. When it returns, the connection has no deadline.
func ask(ctx context.Context, conn net.Conn, command ...string) ([]string, error) {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(command))
	for _, word := range command {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(conn, request.String()); err != nil {
		return nil, err
	}
	answer, err := read(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, fmt.Errorf("redisserver: %s: %w", command[0], err)
	}
	return answer, conn.SetDeadline(time.Time{})
}

// The function read appends the strings and numbers of one reply to words.
func read(r *bufio.Reader, words []string) ([]string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	kind, rest := line[:1], line[1:]
	switch kind {
	case "-":
		return nil, errors.New(rest)
	case "+", ":":
		return append(words, rest), nil
	}
	n, err := strconv.Atoi(rest)
	switch {
	case err != nil:
		return nil, err
	case n < 0:
		return append(words, ""), nil
	case kind == "$":
		data := make([]byte, n+len("\r\n"))
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, err
		}
		return append(words, string(data[:n])), nil
	}
	for range n {
		if words, err = read(r, words); err != nil {
			return nil, err
		}
	}
	return words, nil
}
