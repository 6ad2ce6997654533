//go:build linux || darwin || freebsd

package main_test

import (
	"strings"
	"testing"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
)

// The scheme of a URL selects the store. Without a scheme, the error lists all stores.
func TestStoresAreToldByTheirSchemes(t *testing.T) {
	t.Parallel()
	const forms = `zk://zk1:2181,zk2:2181/app, etcd://etcd1:2379,etcd2:2379, postgres://app@db/app, ` +
		`mysql://app@db/app, redis://redis1:6379/0, agent:///run/tierlock.sock\n$`
	commandtest.Want(t, []string{"TIERLOCK_STORE="}, "ls", 64, "give -store URL or set TIERLOCK_STORE: "+forms)
	commandtest.Want(t, []string{"TIERLOCK_STORE=127.0.0.1:2181"}, "ls", 64, "TIERLOCK_STORE has no scheme; want "+forms)
	commandtest.Want(t, nil, "ls -store consul://127.0.0.1:1", 64, `-store has the scheme "consul", which belongs to no store; want `+forms)
	for scheme, name := range map[string]string{
		"zk": "ZooKeeper", "etcd": "etcd", "postgres": "PostgreSQL", "postgresql": "PostgreSQL",
		"mysql": "MySQL", "redis": "Redis", "rediss": "Redis",
	} {
		where := "ls -connect-timeout 100ms -store " + scheme + "://127.0.0.1:1"
		if name == "MySQL" {
			where += "/app"
		}
		commandtest.Want(t, nil, where, 69, "^tierlock: ")
		if name != "PostgreSQL" && name != "MySQL" {
			commandtest.Want(t, nil, strings.Replace(where, "ls", "migrate", 1), 64,
				"migrate is for PostgreSQL or MySQL, such as .*; the store is "+name)
		}
	}
}

// Whatever is wrong with a URL, no store shows its password.
func TestPasswordsOfURLsAreNotShown(t *testing.T) {
	t.Parallel()
	for _, u := range []string{
		"zk://me:hunter2@127.0.0.1:1/app", "zk://me:hunter2@", "zk://me:hunter2@127.0.0.1:none", "etcd://me:hunter2@127.0.0.1:1",
		"etcd://me:hunter2@127.0.0.1:1/x", "etcd://:hunter2@127.0.0.1:1", "postgres://me:hunter2@127.0.0.1:1/app",
		"postgres://me:hunter2@127.0.0.1:none/app", "postgres://me@127.0.0.1:none/app?password=hunter2",
		"postgres://me:hunter2@127.0.0.1/app?sslmode=none", "postgres://127.0.0.1:1/app?password=hunter2",
		"mysql://me:hunter2@127.0.0.1:1/app", "mysql://me:hunter2@127.0.0.1:none/app", "mysql://me:hunter2@127.0.0.1:1",
		"mysql://me:hunter2@127.0.0.1:1/app?tls=none",
		"redis://me:hunter2@127.0.0.1:1", "redis://me:hunter2@127.0.0.1:none", "redis://me:hunter2@127.0.0.1:1/x",
		"rediss://me:hunter2@127.0.0.1:1?addr=127.0.0.1:2", "redis://me:hunter2@127.0.0.1:1?addr=x",
		"redis://127.0.0.1:1?master_name=x&password=hunter2", "redis://me:hunter2@127.0.0.1:1?password=hunter2",
	} {
		for _, line := range []string{"run -v /x -- true", "doctor /x", "watch /x", "ls -store " + u} {
			p := commandtest.Start(t, []string{"TIERLOCK_STORE=" + u}, append([]string{"-connect-timeout", "200ms"}, strings.Fields(line)...)...)
			status := 64
			if !strings.HasPrefix(line, "ls") && p.Status() == 69 { // this URL is right, but no server is there
				status = 69
			}
			p.Exits(status)
			if text := p.Stdout.String() + p.Stderr.String(); strings.Contains(text, "hunter2") {
				t.Errorf("%s at %s shows the password: %s", line, u, text)
			}
		}
	}
}
