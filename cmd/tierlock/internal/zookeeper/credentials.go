package zookeeper

import (
	"fmt"
	"strings"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command"
	"github.com/tierlock/tierlock/internal/zknode"
)

// auth returns options with the credentials. Without TIERLOCK_AUTH and -auth-file, it uses the user of the URL, with the scheme digest.
func auth(a *command.Address) ([]zknode.Option, error) {
	text, source, err := a.Credentials()
	if err != nil {
		return nil, err
	}
	if text == "" && a.User != nil {
		password, _ := a.User.Password()
		return []zknode.Option{zknode.WithAuth("digest", []byte(a.User.Username()+":"+password))}, nil
	}
	var opts []zknode.Option
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		scheme, credentials, ok := strings.Cut(line, ":")
		if !ok || scheme == "" { // the line is not quoted, because it may be a secret
			return nil, fmt.Errorf("%s: line %d: want scheme:credentials, such as digest:user:password", source, i+1)
		}
		opts = append(opts, zknode.WithAuth(scheme, []byte(credentials)))
	}
	return opts, nil
}
