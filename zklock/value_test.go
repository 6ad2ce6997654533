package zklock_test

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// Values are not stored below lock paths: other libraries would wait for such a child, and the path is deleted when its queue is empty.
func TestValueIsInATreeOfItsOwn(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		below, whole := dial(t, srv, "127.0.0.1:2181/app"), dial(t, srv, "127.0.0.1:2181")
		h := hold(t, below.Mutex("/jobs/report"))
		need.OK(t, h.Save(t.Context(), []byte("first")))
		need.List(t, "values", srv.Children("/tierlock-values"), "%2Fapp%2Fjobs%2Freport")
		need.Equal(t, "children of the lock", len(srv.Children("/app/jobs/report")), 1)
		locktest.WantErr(t, "Release", h.Release(), nil)
		v := need.Get(whole.Mutex("/app/jobs/report").Load(t.Context()))(t)
		need.Equal(t, "the value over another path of the connect string", string(v.Data), "first")

		h = hold(t, whole.Mutex("/app/jobs/report"))
		need.OK(t, h.Forget(t.Context()))
		need.List(t, "values", srv.Children("/tierlock-values"))
		locktest.WantErr(t, "Release", h.Release(), nil)
		for _, path := range []string{"/tierlock-values", "/tierlock-values/x"} {
			need.WantErr(t, "Acquire "+path, need.ErrOf(whole.Mutex(path).Acquire(t.Context())), zk.ErrInvalidPath)
		}
	})
}

// A value gets the ACL of its writer. If a process may not create a value, the error names the node on which a permission is missing.
func TestValueHasTheACLOfItsWriter(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		readable := append(zk.DigestACL(zk.PermAll, "a", "secret"), zk.WorldACL(zk.PermRead)...)
		a := dial(t, srv, "127.0.0.1:2181", zklock.WithAuth("digest", []byte("a:secret")), zklock.WithACL(readable))
		b := dial(t, srv, "127.0.0.1:2181")
		h := hold(t, a.Mutex("/a"))
		need.OK(t, h.Save(t.Context(), []byte("first")))
		need.OK(t, h.Save(t.Context(), []byte("second")))
		need.Equal(t, "value", string(need.Get(b.Mutex("/a").Load(t.Context()))(t).Data), "second")
		locktest.WantErr(t, "Release", h.Release(), nil)

		other := hold(t, b.Mutex("/b"))
		need.WantMention(t, other.Save(t.Context(), nil), "/b", "no CREATE permission on /tierlock-values")
		locktest.WantErr(t, "Release", other.Release(), nil)
		need.WantErr(t, "Load", need.ErrOf(b.Mutex("/b").Load(t.Context())), tier.ErrNoValue)
	})
}
