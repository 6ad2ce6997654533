package tier

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Name returns the lock path below dir for any string, such as the name of a job. Letters and digits of any script and - _ . ~ : @ = + ,
// stay as they are; other characters are escaped as in URLs. Different names give different paths, and url.PathUnescape returns the name.
// Names that a store reserves, such as "lock-0000000001" on ZooKeeper, have their last character escaped.
//
//	tier.Name("/jobs", "daily report/größe") == "/jobs/daily%20report%2Fgröße"
//
// Name does not escape dir. For an empty name, or if the path is longer than a kilobyte, Name returns a path that cannot be a lock. The
// methods of a lock with this path return an error.
func Name(dir, name string) string {
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(dir, "/"))
	b.WriteByte('/')
	kept := b.Len()
	dots := strings.Trim(name, ".") == "" // "." and ".." have another meaning in a path
	for rest := name; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		if plain(r) && !dots {
			b.WriteString(rest[:size])
		} else {
			for _, c := range []byte(rest[:size]) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		}
		rest = rest[size:]
	}
	if b.String() == "/zookeeper" { // ZooKeeper reserves this path
		return b.String()[:kept] + "%7Aookeeper"
	}
	if last := b.Len() - 1; reserved.MatchString(name) {
		return fmt.Sprintf("%s%%%02X", b.String()[:last], b.String()[last])
	}
	return b.String()
}

// The expression reserved matches the names of contenders in ZooKeeper, of all libraries. It also matches the suffixes of the additional
// keys that a lock has in Redis.
var reserved = regexp.MustCompile(`(lock-|__WRIT__|__READ__|__lock__|__rlock__)(\d{10}|-\d{9,10})$|:tierlock:\w+$`)

// plain reports whether a character is valid in the paths of all stores. ZooKeeper accepts no character above U+FFFF.
func plain(r rune) bool {
	if r < unicode.MaxASCII {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.~:@=+,", r)
	}
	return r < 0xfff0 && (unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsNumber(r))
}
