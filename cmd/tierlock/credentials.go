package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/tierlock/tierlock/zklock"
)

// auth reads the credentials, which never come from the command line: everybody can see that.
func (z *zooKeeper) auth() ([]zklock.Option, error) {
	text, source := os.Getenv("TIERLOCK_AUTH"), "TIERLOCK_AUTH"
	if z.authFile != "" {
		content, err := os.ReadFile(z.authFile)
		if err != nil {
			return nil, fmt.Errorf("-auth-file: %w", err)
		}
		text, source = string(content), z.authFile
	}
	var opts []zklock.Option
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		scheme, credentials, ok := strings.Cut(line, ":")
		if !ok || scheme == "" { // not quoted: it may be a secret
			return nil, fmt.Errorf("%s: line %d: want scheme:credentials, such as digest:user:password", source, i+1)
		}
		opts = append(opts, zklock.WithAuth(scheme, []byte(credentials)))
	}
	return opts, nil
}
