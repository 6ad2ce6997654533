package pgserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Serves reports whether the server's own status file contains the pid of the server, and in its eighth line that the server accepts
// clients. Another program at the address does not pass, because Serves reads the file.
func (p *program) Serves() bool {
	text, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 8 || lines[0] != strconv.Itoa(p.server.Pid()) {
		return false
	}
	status := strings.TrimSpace(lines[7])
	return status == "ready" || status == "standby"
}

// Mode returns "leader" or "follower". It returns an error if the server does not answer.
func (p *program) Mode() (string, error) {
	standby, err := p.ask("SELECT pg_is_in_recovery()")
	switch {
	case err != nil:
		return "", err
	case standby == "t":
		return "follower", nil
	}
	return "leader", nil
}

// Version returns the server's release, such as "15.18". It returns an error if the server does not answer.
func (p *program) Version() (string, error) {
	version, err := p.ask("SHOW server_version")
	version, _, _ = strings.Cut(version, " ") // Debian adds the version of its package
	return version, err
}

// The method ask runs a query that returns one value. It has a time limit, because a paused server accepts the query and never answers.
func (p *program) ask(query string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return p.query(ctx, query)
}

func (p *program) query(ctx context.Context, query string) (string, error) {
	psql := p.runUntil(ctx, "psql", "--no-psqlrc", "--tuples-only", "--no-align", "--command="+query, URL(p.addr))
	var said strings.Builder
	psql.Stderr = &said
	out, err := psql.Output()
	if err != nil {
		return "", fmt.Errorf("pgserver: %s: %q: %w: %s", p.addr, query, err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// The function url returns the URL of the database that has the same name as the user. A client that gets several servers looks for the
// primary among them.
func url(user string, addrs []string) string {
	url := "postgres://" + user + "@" + strings.Join(addrs, ",") + "/" + user + "?sslmode=disable"
	if len(addrs) > 1 {
		url += "&target_session_attrs=read-write"
	}
	return url
}
