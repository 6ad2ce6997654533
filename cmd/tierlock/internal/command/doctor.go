package command

import (
	"context"
	"fmt"
	"io"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
)

func doctorSubcommand() *subcommand {
	return &subcommand{
		name:  "doctor",
		usage: "PATH",
		about: "check a lock path: permissions, queue entries, faults",
		help: `Checks the lock at PATH. It reports what these credentials may do at PATH, and for each queue entry its
process and the entries ahead of it. It changes nothing.

  tierlock doctor /jobs/report

Findings are ok, note, warning or problem. It exits with 1 if there is a warning or a problem. A
killed process stays in the queue until its session times out.
`,
		run: runDoctor,
	}
}

func runDoctor(ctx context.Context, in *invocation) error {
	path, err := in.lockPath()
	if err != nil {
		return err
	}
	return in.look(ctx, func(ctx context.Context, locks *Locks) error {
		report, err := locks.Desk.Examine(ctx, path)
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
