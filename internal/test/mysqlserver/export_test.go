package mysqlserver

import (
	"context"
	"net"
	"strings"
	"time"
)

// Ask executes a statement as root with the server's own client program. It returns the single value of the answer.
func Ask(addr, query string) (string, error) {
	i, err := find()
	if err != nil {
		return "", err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	out, err := i.run(ctx, i.client(), "--no-defaults", "--user=root", "--protocol=tcp", "--host="+host, "--port="+port, "--batch",
		"--skip-column-names", "--execute="+query).Output()
	return strings.TrimSpace(string(out)), err
}
