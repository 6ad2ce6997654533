package zklock

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"
)

// maxPath leaves room for the node name in the 1 MB that a server accepts by default,
// and for a human reader in a log line.
const maxPath = 1024

// ValidatePath reports whether path may name a lock: absolute, no empty component, no
// "." or "..", valid UTF-8 without the characters that ZooKeeper forbids (among them all
// above U+FFFF), not the root, not under /zookeeper, at most 1024 bytes. The error wraps
// [zk.ErrInvalidPath].
func ValidatePath(path string) error {
	if err := checkPath(path); err != nil {
		return fmt.Errorf("zklock: lock path %q: %w: %w", path, err, zk.ErrInvalidPath)
	}
	return nil
}

func checkPath(path string) error {
	switch {
	case path == "":
		return errors.New("empty")
	case path[0] != '/':
		return errors.New("it has to begin with /")
	case path == "/":
		return errors.New("the root cannot be a lock")
	case len(path) > maxPath:
		return fmt.Errorf("longer than %d bytes", maxPath)
	case !utf8.ValidString(path):
		return errors.New("not valid UTF-8")
	}
	for i, component := range strings.Split(path[1:], "/") {
		switch {
		case component == "":
			return errors.New("empty component")
		case component == "." || component == "..":
			return fmt.Errorf("component %q", component)
		case i == 0 && component == "zookeeper":
			return errors.New("/zookeeper is reserved")
		}
	}
	for i, r := range path {
		if forbidden(r) {
			return fmt.Errorf("character %U at byte %d", r, i)
		}
	}
	return nil
}

// forbidden follows the list in the ZooKeeper Programmer's Guide, "The ZooKeeper Data
// Model". The server looks at UTF-16, in which a character above U+FFFF is two surrogates.
func forbidden(r rune) bool {
	return r <= 0x1f || 0x7f <= r && r <= 0x9f || 0xd800 <= r && r <= 0xf8ff || 0xfff0 <= r
}

// parentOf returns the path of the node above path, "" above a top-level node.
func parentOf(path string) string {
	return path[:strings.LastIndexByte(path, '/')]
}

// baseOf returns the last component of path.
func baseOf(path string) string {
	return path[strings.LastIndexByte(path, '/')+1:]
}
