package command

import (
	"flag"
	"fmt"
	"os"
)

// Credentials are where a user's are. They never come from the command line: everybody can see that.
type Credentials struct{ file string }

// Flags adds the one for a file; what says what is in it.
func (c *Credentials) Flags(flags *flag.FlagSet, what string) {
	flags.StringVar(&c.file, "auth-file", c.file, "`file` with "+what+" (default $TIERLOCK_AUTH)")
}

// Read returns what is there, "" if there are none, and where that is.
func (c *Credentials) Read() (text, source string, err error) {
	if c.file == "" {
		return os.Getenv("TIERLOCK_AUTH"), "TIERLOCK_AUTH", nil
	}
	content, err := os.ReadFile(c.file)
	if err != nil {
		return "", "", fmt.Errorf("-auth-file: %w", err)
	}
	return string(content), c.file, nil
}
