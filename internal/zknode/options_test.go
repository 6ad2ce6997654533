package zknode_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestDialRefusesBadOptionsByName(t *testing.T) {
	for _, tt := range []struct {
		option zknode.Option
		name   string // what the error has to contain
	}{
		{zknode.WithSessionTimeout(time.Microsecond), "session timeout 1µs"},
		{zknode.WithSessionTimeout(25 * 24 * time.Hour), "session timeout 600h"},
		{zknode.WithLeaseMargin(15 * time.Second), "lease margin 15s"}, // as long as the default session timeout
		{zknode.WithACL(nil), "ACL"},
		{zknode.WithDialContext(nil), "nil dial"},
		{zknode.WithLabel("a\nb"), "not printable"},
		{zknode.WithAuth("", []byte("u:p")), "WithAuth: the scheme is empty"},
	} {
		t.Run(tt.name, func(t *testing.T) { wantRefusal(t, addr, tt.name, tt.option) })
	}
}

func TestDialSaysWhatToWriteInsteadOfABadConnectString(t *testing.T) {
	for _, tt := range []struct {
		connect, instead string
	}{
		{" \n", "it is empty; want host:port,host:port/path"},
		{addr + ",", "a server is missing; want host:port,host:port"},
		{"/app", "a server is missing"},
		{"http://127.0.0.1:2181", `no scheme such as http; write "127.0.0.1:2181"`},
		{"zk1:2181;zk2:2181", `commas separate servers; write "zk1:2181,zk2:2181"`},
		{"zk1 zk2 zk3", `commas separate servers; write "zk1,zk2,zk3"`},
		{"zk1:2181|zk2:2181/app", `commas separate servers; write "zk1:2181,zk2:2181"`},
		{"zk1,zk2;", `commas separate servers; write "zk2"`},
		{"127.0.0.1:0", `server "127.0.0.1:0": want host:port, with a port from 1 to 65535`},
		{"127.0.0.1:65536", `"127.0.0.1:65536": want host:port`},
		{"127.0.0.1:", `"127.0.0.1:": want host:port`},
		{":2181", `":2181": want host:port`},
		{addr + ",::1", `server "::1": IPv6 addresses go in brackets, as in [::1]:2181`},
		{"zk1:2181:2182", `server "zk1:2181:2182": want host:port, or [address]:port for IPv6`},
		{"[::1", "want host:port, or [address]:port for IPv6"},
		{addr + "/app/", `a slash at the end; write "127.0.0.1:2181/app"`},
		{addr + "//", `a slash at the end; write "127.0.0.1:2181"`},
		{addr + "//app", `path "//app": empty component`},
		{addr + "/zookeeper", `path "/zookeeper": /zookeeper is reserved`},
		{addr + "/app/..", `".."`},
		{addr + "/app,127.0.0.1:2182/app", "want one path, behind the last server"},
		{addr + "/app;127.0.0.1:2182/app", "want one path, behind the last server"},
	} {
		t.Run(tt.connect, func(t *testing.T) {
			wantRefusal(t, tt.connect, tt.instead)
			wantRefusal(t, tt.connect, fmt.Sprintf("connect string %q: ", tt.connect))
		})
	}
}

func TestCredentialsInAConnectStringAreNotRepeated(t *testing.T) {
	for _, connect := range []string{"zk://user:secret@zk1:2181", "user:secret@zk1:2181/app"} {
		wantRefusal(t, connect, "WithAuth")
		err := need.ErrOf(zknode.Dial(t.Context(), connect))
		need.That(t, "repeated in "+err.Error(), !strings.Contains(err.Error(), "secret"))
	}
}

func TestAConnectStringIsReadAsOtherClientsDo(t *testing.T) {
	for _, tt := range []struct {
		connect, member, chroot string
	}{
		{"zk1", "zk1:2181", ""},
		{"zk1:2281/", "zk1:2281", ""},
		{" zk1:2281 , zk1:2281/app\n", "zk1:2281", "/app"},
		{"zk1/a b", "zk1:2181", "/a b"},
		{"[::1]", "[::1]:2181", ""},
		{"[::1]:2281/a:b", "[::1]:2281", "/a:b"},
		{"[fe80::1%eth0]:2281", "[fe80::1%eth0]:2281", ""},
	} {
		t.Run(tt.connect, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				c := need.Get(zknode.Dial(t.Context(), tt.connect, zknode.WithDialContext(s.DialContext)))(t)
				defer c.Close()
				need.Equal(t, "dialed", s.Sessions()[0].Member, tt.member)
				n := need.Get(lockAt(t, c, path).Acquire(t.Context()))(t)
				defer n.Release()
				need.Equal(t, "nodes below "+tt.chroot+path, len(s.Children(tt.chroot+path)), 1)
			})
		})
	}
}

// wantRefusal fails the test unless Dial returns an error that contains name, without dialing.
func wantRefusal(t *testing.T, connect, name string, opts ...zknode.Option) {
	t.Helper()
	dialed := func(context.Context, string, string) (net.Conn, error) {
		t.Error("dialed")
		return nil, errors.New("no")
	}
	ctx := within(t, 5*time.Second)
	c, err := zknode.Dial(ctx, connect, append([]zknode.Option{zknode.WithDialContext(dialed)}, opts...)...)
	if err == nil {
		c.Close()
		t.Fatal("Dial succeeded")
	}
	wantMention(t, err, name)
	need.That(t, "of another package: "+err.Error(), strings.HasPrefix(err.Error(), "zklock: dial"))
	need.That(t, "not refused at once", ctx.Err() == nil)
}

func TestValidatePath(t *testing.T) {
	for _, path := range []string{
		"/a", "/locks/x", "/a/zookeeper", "/zookeeperx", "/.../..a", "/größe/ключ/鍵", "/\ud7ff\uf900\uffef", "/ a b",
		"/" + strings.Repeat("x", 1023),
	} {
		wantErr(t, "ValidatePath", zknode.ValidatePath(path), nil)
	}
	for _, path := range []string{
		"", "/", "a", "a/b", "//", "/a/", "//a", "/a//b", "/.", "/a/./b", "/a/..", "/zookeeper", "/zookeeper/x",
		"/a\x00", "/\x1f", "/\x7f", "/a\u0080b", "/\u009f", "/\ue000", "/\uf8ff", "/\ufff0", "/\uffff", "/\ufffd", "/\U00010000", "/🔑",
		"/\xff", "/\xed\xa0\x80", "/" + strings.Repeat("x", 1024),
	} {
		wantErr(t, "ValidatePath("+path+")", zknode.ValidatePath(path), zk.ErrInvalidPath)
	}
	wantMention(t, zknode.ValidatePath("/"), "root")
}

// A caller may get a node that an equal lock has created, and must not notice a difference.
func TestEqualLocksMakeNodesThatAreAlike(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		base := func(opts ...zknode.LockOption) *zknode.Lock { return lockAt(t, p.Client, path, opts...) }
		data := func(data []byte) *zknode.Lock { return base(zknode.NodeData(data)) }
		need.That(t, "locks made alike are not equal", base().Equal(base()) && data([]byte("a")).Equal(data([]byte("a"))))
		need.That(t, "locks without data are not equal", data(nil).Equal(data([]byte{})))
		for name, other := range map[string]*zknode.Lock{
			"client": lockAt(t, start(t, s).Client, path),
			"path":   lockAt(t, p.Client, path+"y"),
			"ACL":    base(zknode.NodeACL(zk.WorldACL(zk.PermRead))),
			"linger": base().MayLinger(time.Second),
			"mode":   base().Mode(second.Reading),
			"data":   data([]byte("a")),
			"none":   data(nil), // the same path without data: then a node describes its process
		} {
			need.That(t, "equal though they differ in "+name, !base().Equal(other) && !other.Equal(base()))
		}
		need.That(t, "equal though their data differ", !data([]byte("a")).Equal(data([]byte("b"))))
	})
}

// Dial returns when its context ends. At the end, the bubble fails the test if a goroutine is left.
func TestDialEndsWithItsContext(t *testing.T) {
	muteToCredentials := func(s *zktest.Server) {
		strike(s, 1, is("setAuth", zktest.Request), func(*zktest.Frame) zktest.Action {
			s.Freeze()
			return zktest.Pass
		})
	}
	for name, c := range map[string]struct {
		trouble func(*zktest.Server)
		auth    bool
		left    time.Duration // for how long a goroutine may be left behind
		causes  []error       // errors in addition to the end of the context, if there was time for them
	}{
		"no server":                    {trouble: down, causes: []error{zk.ErrNoServer, syscall.ECONNREFUSED}},
		"no server, with credentials":  {trouble: down, auth: true, causes: []error{zk.ErrNoServer, syscall.ECONNREFUSED}},
		"a mute server":                {trouble: func(s *zktest.Server) { s.Freeze() }, auth: true},
		"a server mute to credentials": {trouble: muteToCredentials, auth: true, left: time.Second},
	} {
		for _, patience := range []time.Duration{0, time.Millisecond, 700 * time.Millisecond, 5 * time.Second, 10 * time.Second} {
			t.Run(name+" for "+patience.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T, s *zktest.Server) {
					c.trouble(s)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					time.AfterFunc(patience, cancel)
					began := time.Now()
					opts := []zknode.Option{zknode.WithDialContext(s.DialContext), zknode.WithSessionTimeout(time.Minute)}
					if c.auth {
						opts = append(opts, zknode.WithAuth("digest", []byte("u:p")))
					}
					_, err := zknode.Dial(ctx, addr, opts...)
					wantErr(t, "Dial", err, context.Canceled)
					for _, cause := range c.causes {
						if patience > 0 {
							wantErr(t, "Dial", err, cause)
						}
					}
					late := time.Since(began) - patience
					need.AtMost(t, "until it returned", late, 100*time.Millisecond)
					need.That(t, fmt.Sprintf("returned %v after its context", late), c.left > 0 || late <= 10*time.Millisecond)
					time.Sleep(c.left)
					s.Unfreeze()
				})
			})
		}
	}
}

func TestNamesAreLookedUpByTheSystem(t *testing.T) {
	s := zktest.Start(t)
	at := need.Get(s.Listen("127.0.0.1:0"))(t)
	_, port, _ := net.SplitHostPort(at.String())
	c := need.Get(zknode.Dial(within(t, 10*time.Second), net.JoinHostPort("localhost", port)))(t)
	c.Close()
}

func TestNodeOptionsAreForOneLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, conn := start(t, s), raw(t, s)
		data, acl := zknode.NodeData([]byte("mine")), zknode.NodeACL(zk.WorldACL(zk.PermAll&^zk.PermAdmin))
		n := acquire(t, lockAt(t, p.Client, "/locks/a", data, acl))
		need.Equal(t, "the content", content(s, n.Path()), "mine")
		perms, _, err := conn.GetACL(n.Path())
		need.That(t, fmt.Sprintf("ACL %v, %v", perms, err), len(perms) == 1 && perms[0].Perms == zk.PermAll&^zk.PermAdmin)
		need.Has(t, "content of the other lock", content(s, p.acquire(t).Path()), `"pid"`)
		for want, opt := range map[string]zknode.LockOption{
			"empty ACL": zknode.NodeACL(nil), "data of 524289 bytes": zknode.NodeData(make([]byte, 512<<10+1)),
		} {
			wantMention(t, need.ErrOf(p.Client.Lock("/locks/a", opt)), want)
		}
		_, err = zknode.Tier(p.Client).Claim("/locks/a", second.Options{Own: []any{nil}})
		wantMention(t, err, "option of type <nil>")
		lockAt(t, p.Client, "/locks/a", zknode.NodeData(make([]byte, 512<<10)))
	})
}
