package pglock

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxPath leaves room for a human reader in a log line.
const maxPath = 1024

// ValidatePath reports whether path may name a lock: not empty, no empty component,
// no slash at the end, valid UTF-8 without control characters, at most 1024 bytes. Unlike in
// ZooKeeper it need not begin with a slash; "/locks/x" and "locks/x" are different locks.
func ValidatePath(path string) error {
	if err := checkPath(path); err != nil {
		return fmt.Errorf("pglock: lock path %q: %w", path, err)
	}
	return nil
}

func checkPath(path string) error {
	switch {
	case path == "":
		return errors.New("empty")
	case len(path) > maxPath:
		return fmt.Errorf("longer than %d bytes", maxPath)
	case !utf8.ValidString(path):
		return errors.New("not valid UTF-8")
	case strings.HasSuffix(path, "/"):
		return errors.New("ends in a slash")
	case strings.Contains(path, "//"):
		return errors.New("empty component")
	case strings.ContainsFunc(path, unicode.IsControl):
		return errors.New("control character")
	}
	return nil
}
