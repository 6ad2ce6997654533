package redislock

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// errDenied means that the client's Redis user lacks a permission.
var errDenied = errors.New("permissions of the Redis user are missing")

// allow wraps err in an error that also names ACL rules. These rules would have allowed the request that failed with err.
func allow(err error, rules ...string) error {
	return fmt.Errorf("%w: grant them with ACL SETUSER … %s", err, strings.Join(rules, " "))
}

var commandDenied = regexp.MustCompile(`'(\S+)' command`)

// advise is called with the error of a request. If Redis has refused the request because a permission is missing, advise adds the ACL rule
// that would have allowed it. keys are patterns for the keys of the request.
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

// patterns returns patterns that match all keys of a lock.
func patterns(path string) []string { return []string{path, tagged(path) + ":tierlock:*"} }
