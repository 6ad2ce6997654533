package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tierlock/tierlock/tier"
)

func valueSubcommand() *subcommand {
	return &subcommand{
		name:  "value",
		usage: "PATH",
		about: "print the value beside a lock",
		help: `Prints the bytes that a program saved beside the lock at PATH with Hold.Save, such as the checkpoint of a
job. With -o json it also prints the token of the hold that saved them, and the time.

  tierlock value /jobs/report

It exits with 1 if no value is saved there. tierlock who shows size and age.
`,
		run: runValue,
	}
}

// A value is the JSON output of the subcommand value. The output of the subcommand who contains it without the data.
type value struct {
	Path  string    `json:"path,omitempty"`
	Size  int       `json:"size"`
	Token int64     `json:"token"`
	Saved time.Time `json:"saved"`
	Data  []byte    `json:"data,omitempty"` // encoded in base64
}

func runValue(ctx context.Context, in *invocation) error {
	path, err := in.lockPath()
	if err != nil {
		return err
	}
	return in.look(ctx, func(ctx context.Context, locks *Locks) error {
		v, err := locks.Mutex(path).Load(ctx)
		switch {
		case errors.Is(err, tier.ErrNoValue):
			return fail(exitNo, "no value is saved beside %s", clean(path))
		case err != nil:
			return err
		case in.output == "json":
			return writeJSON(in.stdout, value{path, len(v.Data), v.Token, v.Saved, v.Data}, "  ")
		}
		_, err = in.stdout.Write(v.Data)
		return err
	})
}

// valueAt returns the value at a path without its data. If there is no value, it returns nil.
func valueAt(ctx context.Context, locks *Locks, path string) (*value, error) {
	v, err := locks.Mutex(path).Load(ctx)
	if errors.Is(err, tier.ErrNoValue) {
		return nil, nil
	}
	return &value{Size: len(v.Data), Token: v.Token, Saved: v.Saved}, err
}

func (v *value) write(w io.Writer) {
	fmt.Fprintf(w, "value: %d bytes, saved %s ago with token %d\n", v.Size, age(max(time.Since(v.Saved), 0)), v.Token)
}
