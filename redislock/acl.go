package redislock

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// errDenied says that the client's user lacks a permission.
var errDenied = errors.New("permissions of the Redis user are missing")

// allow adds to an error the ACL rules that would have allowed the request.
func allow(err error, rules ...string) error {
	return fmt.Errorf("%w: allow it with ACL SETUSER … %s", err, strings.Join(rules, " "))
}

var commandDenied = regexp.MustCompile(`'(\S+)' command`)

// advise adds to the error of a request the rules that would have allowed it, for keys that match these patterns.
func advise(err error, keys ...string) error {
	if !redis.HasErrorPrefix(err, "NOPERM") {
		return err
	}
	text := err.Error()
	switch command := commandDenied.FindStringSubmatch(text); {
	case command != nil:
		return allow(err, "+"+command[1])
	case strings.Contains(text, "channel"):
		return allow(err, "&tierlock:*")
	case strings.Contains(text, "key"):
		return allow(err, "~"+strings.Join(keys, " ~"))
	}
	return err
}

// patterns match the keys of a lock.
func patterns(path string) []string { return []string{path, tagged(path) + ":tierlock:*"} }
