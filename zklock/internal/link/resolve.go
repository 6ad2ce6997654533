package link

import (
	"context"
	"fmt"
	"net"
	"time"
)

// lookupTimeout bounds the look-up of all names.
const lookupTimeout = 3 * time.Second

// resolve replaces the names of servers by their addresses, all of them. The library
// would do so in zk.Connect, where no context ends it. When ctx is cancelled, a question
// that is under way goes on in the background until it has an answer or its time is up.
func resolve(ctx context.Context, servers []string) ([]string, error) {
	resolver := net.DefaultResolver
	type result struct {
		addresses []string
		err       error
	}
	found := make(chan result, 1)
	// Not ended by ctx: what the look-up said of that could come before the end of ctx itself.
	background, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
	defer cancel()
	go func() {
		addresses, err := lookUp(background, resolver, servers)
		found <- result{addresses, err}
	}()
	select {
	case r := <-found:
		return r.addresses, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("look up: %w", context.Cause(ctx))
	}
}

func lookUp(ctx context.Context, resolver *net.Resolver, servers []string) ([]string, error) {
	var addresses []string
	for _, server := range servers {
		host, port, _ := net.SplitHostPort(server) // it was checked that it is both
		ips, err := resolver.LookupHost(ctx, host)
		if err != nil {
			return nil, err
		}
		for _, ip := range ips {
			addresses = append(addresses, net.JoinHostPort(ip, port))
		}
	}
	return addresses, nil
}
