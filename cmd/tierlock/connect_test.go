//go:build linux || darwin || freebsd

package main_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/internal/test/zkserver/zkservertest"
)

// With TLS, both sides show certificates. A server whose certificate is not trusted is reported like a server that cannot be reached.
func TestTLS(t *testing.T) {
	t.Parallel()
	authority := zkservertest.NewAuthority(t)
	server := childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true, TLS: authority.TLS("localhost", "127.0.0.1")})
	addr := zkserver.SecureAddr(server)
	client := authority.Issue("client").File
	pair := "-connect-timeout 30s -tls-cert " + client + " -tls-key " + client
	trusted := []*commandtest.Tool{
		start(t, addr, commandtest.Under(pair+" -tls-ca "+authority.File, "/tls/a", "true")...),
		start(t, addr, commandtest.Under(pair+" -tls-ca "+authority.File+" -tls-server-name localhost", "/tls/b", "true")...),
	}
	refused := make(map[*commandtest.Tool]string)
	for flags, want := range map[string]string{
		pair: "-tls-ca has to name",
		pair + " -tls-server-name other.test -tls-ca " + authority.File: "with -tls-server-name",
		"-tls-ca " + authority.File:                                     "-tls-cert and -tls-key",
	} {
		refused[start(t, addr, commandtest.Under(flags+" -connect-timeout 20s", "/tls", "true")...)] = want
	}
	for _, p := range trusted {
		p.Exits(0)
	}
	for p, want := range refused {
		p.Exits(69)
		p.Says(want)
	}
}

// Credentials come from a file or from the environment. The command may then do what their permissions allow.
func TestCredentials(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	conn := operate(t, server)
	need.Get(conn.Create("/guarded", nil, 0, zk.DigestACL(zk.PermAll, "user", "secret")))(t)
	p := start(t, server.Addr(), commandtest.Under("", "/guarded", "true")...)
	p.Exits(70)
	p.Says("permission on /guarded")
	p = startWith(t, server.Addr(), func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "TIERLOCK_AUTH=digest:user:secret") },
		commandtest.Under("", "/guarded", "true")...)
	p.Exits(0)
	commandtest.Want(t, []string{"TIERLOCK_STORE=zk://user:secret@" + server.Addr()}, "run -n /guarded -- true", 0)
	file := filepath.Join(t.TempDir(), "credentials")
	need.OK(t, os.WriteFile(file, []byte("digest:user:secret\n"), 0o600))
	start(t, server.Addr(), commandtest.Under("-auth-file "+file, "/guarded", "true")...).Exits(0)
}

// Credentials that may read the queue but not the value see the queue.
func TestQueueIsShownWithoutTheValue(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	conn := operate(t, server)
	if _, err := conn.Create("/tierlock-values", nil, 0, zk.WorldACL(zk.PermAll)); !errors.Is(err, zk.ErrNodeExists) {
		need.OK(t, err)
	}
	need.Get(conn.Create("/tierlock-values/%2Fhidden", nil, 0, zk.DigestACL(zk.PermAll, "user", "secret")))(t)
	for _, form := range []string{"text", "json"} {
		p := start(t, server.Addr(), "who", "/hidden", "-o", form)
		p.Exits(0)
		p.Says("the value beside the lock cannot be read")
		p.Prints(p.Stdout, "/hidden")
	}
}
