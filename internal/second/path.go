package second

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxPath keeps log lines readable.
const maxPath = 1024

// CheckPath reports why a path is invalid. A path is a line of text, and rule is what the store requires beyond that; the error names the
// store's package. If rule is nil, every line of text is valid.
func CheckPath(store, path string, rule func(string) error) error {
	var err error
	switch {
	case path == "":
		err = errors.New("empty")
	case len(path) > maxPath:
		err = fmt.Errorf("longer than %d bytes", maxPath)
	case !utf8.ValidString(path):
		err = errors.New("not valid UTF-8")
	case strings.ContainsFunc(path, unicode.IsControl):
		err = errors.New("control character")
	case rule != nil:
		err = rule(path)
	}
	if err != nil {
		return fmt.Errorf("%s: lock path %q: %w", store, path, err)
	}
	return nil
}

// Components is the rule of stores in which a path is a list of names.
func Components(path string) error {
	switch {
	case strings.HasSuffix(path, "/"):
		return errors.New("ends in a slash")
	case strings.Contains(path, "//"):
		return errors.New("empty component")
	}
	return nil
}
