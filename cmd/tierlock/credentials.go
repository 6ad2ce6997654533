package main

import (
	"fmt"
	"strings"

	"github.com/tierlock/tierlock/internal/zknode"
)

func (z *zooKeeper) auth() ([]zknode.Option, error) {
	text, source, err := z.credentials.Read()
	if err != nil {
		return nil, err
	}
	var opts []zknode.Option
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		scheme, credentials, ok := strings.Cut(line, ":")
		if !ok || scheme == "" { // not quoted: it may be a secret
			return nil, fmt.Errorf("%s: line %d: want scheme:credentials, such as digest:user:password", source, i+1)
		}
		opts = append(opts, zknode.WithAuth(scheme, []byte(credentials)))
	}
	return opts, nil
}
