package redislock

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// setUser changes the permissions of a user at the shared server.
func setUser(t *testing.T, user string, rules ...string) {
	t.Helper()
	asks(t, server(t), "ACL SETUSER "+user+" "+strings.Join(rules, " "))
}

// locksOf starts a process whose client acts as this user. It returns the registry and the log of the process.
func locksOf(t *testing.T, user string) (*tier.Registry, *logtest.Log) {
	t.Helper()
	log, logger := logtest.New(slog.LevelWarn)
	return registry(t, clientOf(t, user), tier.WithLogger(logger), tier.WithLazyStart()), log
}

func clientOf(t *testing.T, user string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: server(t).Addr(), Username: user, Password: "-"})
}

// rulesIn returns the ACL rules that an error names as missing.
func rulesIn(err error) []string {
	_, rules, _ := strings.Cut(err.Error(), "ACL SETUSER … ")
	return strings.Fields(rules)
}

// The error names ACL rules. A user with these rules gets locks. Servers before Redis 7 do not name all missing permissions.
func TestUserWhoMayNotDoAllIsToldWhatToAllow(t *testing.T) {
	t.Parallel()
	const all = "allkeys allchannels +@all "
	for name, c := range map[string]struct{ rules, want string }{
		"subscribe":        {all + "-subscribe", "+subscribe"},
		"publish":          {all + "-publish", "+publish"},
		"channel":          {all + "resetchannels &other:*", "&tierlock:*"},
		"evalsha":          {all + "-evalsha", "+evalsha"},
		"set":              {all + "-set", "+set"},
		"several":          {all + "-zadd -info resetchannels", "+info &tierlock:* +zadd"},
		"key of a primary": {all + "resetkeys ~*users-*", "~{tierlock:primary}:*"},
		"keys of a lock":   {all + "resetkeys ~{tierlock:primary}:*", "~users-keys-of-a-lock ~{users-keys-of-a-lock}:tierlock:*"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			user := "users-" + strings.ReplaceAll(name, " ", "-")
			setUser(t, user, "reset on nopass", c.rules)
			locks, log := locksOf(t, user)
			_, err := locks.Mutex(user).Acquire(soon(t))
			need.Must(t, fmt.Sprintf("Acquire: %v, want %s", err, c.want), err != nil && strings.Join(rulesIn(err), " ") == c.want)
			ofAll, lines := name != "keys of a lock", 0
			if ofAll {
				lines = 1
				client := clientOf(t, user)
				_, err := New(soon(t), client)
				client.Close()
				need.Equal(t, fmt.Sprintf("permissions that the error of New names: %v", err), strings.Join(rulesIn(err), " "), c.want)
				if _, err := locks.Mutex(user).TryAcquire(soon(t)); err == nil || strings.Join(rulesIn(err), " ") != c.want {
					t.Errorf("TryAcquire: %v, want %s", err, c.want)
				}
			}
			if err := locks.Err(); ofAll != (err != nil) || ofAll && strings.Join(rulesIn(err), " ") != c.want {
				t.Errorf("Err: %v, want %s", err, c.want)
			}
			setUser(t, user, rulesIn(err)...)
			eventually(t, "the registry is well", func() bool { return locks.Err() == nil })
			take(t, locks, user)
			locks.Close() // waits until all lines are logged
			need.Equal(t, "lines logged", len(log.Lines(slog.LevelWarn, "ACL SETUSER")), lines)
		})
	}
}

// The permissions that errors name are sufficient: a user that has only these gets locks.
func TestWhatErrorsSayToAllowIsAllThatIsNeeded(t *testing.T) {
	t.Parallel()
	const user = "minimal"
	setUser(t, user, "reset on nopass +evalsha +eval")
	locks, _ := locksOf(t, user)
	for ctx := soon(t); ; { // the error first names commands, then channels and keys of records, then the keys of the lock
		hold, err := locks.Mutex(user).Acquire(ctx)
		if err == nil {
			mustRelease(t, hold)
			return
		} else if len(rulesIn(err)) == 0 {
			t.Fatal(err)
		}
		setUser(t, user, rulesIn(err)...)
	}
}

// Errors about missing permissions, and the documentation, name each command that the scripts use.
func TestEveryCommandOfTheScriptsIsAskedFor(t *testing.T) {
	for _, call := range regexp.MustCompile(`redis\.p?call\('(\w+)'`).FindAllStringSubmatch(lockScript.text+recordScript.text+guarded, -1) {
		need.Has(t, "acl.lua", aclScript.text, "'"+strings.ToLower(call[1])+"'")
	}
}

// If a permission is revoked later, one line is logged. Heartbeats then replace the notifications.
func TestUserWhoMayNotSubscribeAnyMoreIsTold(t *testing.T) {
	t.Parallel()
	const user = "deaf"
	setUser(t, user, "reset on nopass allkeys allchannels allcommands")
	locks, log := locksOf(t, user)
	take(t, locks, user)
	setUser(t, user, "-subscribe")
	disconnect := func() { asks(t, server(t), "CLIENT KILL USER "+user) }
	disconnect()
	eventually(t, "the registry says so", func() bool {
		err := locks.Err()
		return err != nil && strings.Join(rulesIn(err), " ") == "+subscribe"
	})
	take(t, locks, user)
	eventually(t, "a try succeeds", func() bool { // the key may be in a gap, in which it is free for other libraries
		hold, err := locks.Mutex(user).TryAcquire(soon(t))
		return err == nil && hold.Release() == nil
	})
	disconnect() // the process then subscribes again
	take(t, locks, user)
	setUser(t, user, "+subscribe")
	eventually(t, "the registry is well", func() bool { return locks.Err() == nil })
	locks.Close() // waits until all lines are logged
	need.Equal(t, "lines logged", len(log.Lines(slog.LevelWarn, "ACL SETUSER")), 1)
}

// A user may lose the right to publish at any time. The script notices that only when it has already put the contender into the queue.
func TestScriptThatIsRefusedHalfwayMayHaveQueued(t *testing.T) {
	t.Parallel()
	const user = "mute"
	setUser(t, user, "reset on nopass allkeys allchannels allcommands")
	p := start(t, tier.WithLeaseTTL(long))
	holder := p.anew(lockPath(t))
	p.stands(t, queue.Enter, holder, 0)
	client := clientOf(t, user)
	defer client.Close()
	o, _, _ := newOptions([]tier.RegistryOption{tier.WithLeaseTTL(long)})
	mute := open(client, o)
	defer mute.tier.Close()
	ask := queue.Command{Op: queue.Enter, Ref: queue.Ref{Path: holder.Path, ID: mute.Name("")}}
	setUser(t, user, "resetchannels")
	a := mute.Do(soon(t), ask)
	need.That(t, fmt.Sprintf("%+v, want that it was begun", a), a.Outcome == queue.Denied && a.Begun)
	setUser(t, user, "allchannels -get") // without GET, the script does not take the key for a lock of another library
	mute.beat([]queue.Ref{holder})
	need.List(t, "the queue", left(t, holder.Path), holder.ID, ask.ID)
	p.leaves(t, ask.Ref, holder)
}
