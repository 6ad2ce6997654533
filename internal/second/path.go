package second

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxPath is the greatest length of a path in bytes. It keeps log lines readable.
const maxPath = 1024

// CheckPath returns an error if a path is invalid. A path has to be one line of text, and rule returns an error if the store does not
// allow it. If rule is nil, every line of text is valid. The error begins with store, the name of the store's package.
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

// Components is the rule for stores in which a path is a list of names that are separated by slashes.
func Components(path string) error {
	switch {
	case strings.HasSuffix(path, "/"):
		return errors.New("ends in a slash")
	case strings.Contains(path, "//"):
		return errors.New("empty component")
	}
	return nil
}
