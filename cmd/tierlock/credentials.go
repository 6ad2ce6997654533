package main

import (
	"fmt"
	"strings"

	"github.com/tierlock/tierlock/zklock"
)

func (z *zooKeeper) auth() ([]zklock.Option, error) {
	text, source, err := z.credentials.Read()
	if err != nil {
		return nil, err
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
