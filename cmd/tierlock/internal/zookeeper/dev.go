package zookeeper

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// dev returns the task that serves a ZooKeeper in memory, for programs on this machine.
func dev() command.Task {
	port := 2181
	return command.Task{
		Name:  "dev",
		About: "run a ZooKeeper server in memory on this machine, to try locks with",
		Help: `Serves a ZooKeeper in memory on 127.0.0.1:2181 until it is interrupted. Use it to try locks and to run
tests. Other machines cannot reach it. All its data is lost when it ends.

  tierlock dev
  TIERLOCK_STORE=zk://127.0.0.1:2181 tierlock run /jobs/report -- ./report.sh    # in another terminal

It speaks ZooKeeper's protocol to any client. It has no TLS, SASL, quotas or four-letter commands.
`,
		Alone: true,
		Flags: func(flags *flag.FlagSet) {
			flags.IntVar(&port, "port", port, "listen on port `N`; with 0, on any free port (default 2181)")
		},
		Do: func(ctx context.Context, _ *command.Address, w io.Writer) error {
			server := zktest.NewServer(zktest.Config{})
			defer server.Close()
			addr, err := server.Listen(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
			if why := (*net.OpError)(nil); errors.As(err, &why) { // only the error of the system, without the name of a Go package
				err = why
			}
			if err != nil {
				return fmt.Errorf("%w; -port sets another port", err)
			}
			fmt.Fprintf(w, "ZooKeeper in memory on %s, for this machine only; its data is lost when this command ends\n", addr)
			<-ctx.Done()
			return nil
		},
	}
}
