package zklock

import (
	"context"
	"fmt"
	"net"
	"time"
)

// lookupTimeout bounds the look-up of all names.
const lookupTimeout = 3 * time.Second

// resolve replaces the names of servers by their addresses, all of them. The library
// would do so in zk.Connect, where no context ends it. A look-up that is under way when
// ctx is cancelled goes on in its goroutine until it has an answer or its time is up.
func resolve(ctx context.Context, servers []string) ([]string, error) {
	resolver := net.DefaultResolver
	type result struct {
		addresses []string
		err       error
	}
	found := make(chan result, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
		defer cancel()
		addresses, err := lookUp(ctx, resolver, servers)
		found <- result{addresses, err}
	}()
	select {
	case r := <-found:
		if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
			<-ctx.Done() // in a moment: the look-up has a timer of its own
		}
		if r.err != nil && ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), r.err)
		}
		return r.addresses, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("look up: %w", context.Cause(ctx))
	}
}

func lookUp(ctx context.Context, resolver *net.Resolver, servers []string) ([]string, error) {
	var addresses []string
	for _, server := range servers {
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			return nil, err
		}
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
