package command

import (
	"context"
	"fmt"
	"io"

	"github.com/tierlock/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/zklock"
)

func doctorSubcommand() *subcommand {
	return &subcommand{
		name:  "doctor",
		usage: "PATH",
		about: "explain all that is at a lock path, and what is wrong with it",
		help: `Examines the lock at PATH: what these credentials may do there, how many sequence numbers are
left, whether the locks of several libraries on the path exclude each other, and each child: what it
is and what it waits for. It changes nothing.

  tierlock doctor /jobs/report

Findings are ok, note, warning or problem. It exits with 1 if there is a warning or a problem. An
ephemeral node says that its session was alive when the server last counted: a process that died may
stay in the queue for its session timeout.
`,
		run: runDoctor,
	}
}

func runDoctor(ctx context.Context, in *invocation) error {
	path, err := in.lockPath()
	if err != nil {
		return err
	}
	return in.look(ctx, func(ctx context.Context, client *zklock.Client) error {
		lock, err := client.Lock(path)
		if err != nil {
			return usageError("%w", err)
		}
		report, err := inspect.Examine(ctx, client, lock)
		if err != nil {
			return err
		}
		if in.output == "json" {
			err = writeJSON(in.stdout, report, "  ")
		} else {
			err = writeFindings(in.stdout, report)
		}
		if err == nil && report.Bad() {
			return &failure{status: exitNo}
		}
		return err
	})
}

func writeFindings(w io.Writer, report *inspect.Report) error {
	child := ""
	for _, f := range report.Findings {
		if f.Child != child {
			child = f.Child
			fmt.Fprintf(w, "%s\n", clean(child))
		}
		indent := ""
		if child != "" {
			indent = "  "
		}
		if _, err := fmt.Fprintf(w, "%s%-8s %s\n", indent, f.Grade, clean(f.Text)); err != nil {
			return err
		}
	}
	return nil
}
