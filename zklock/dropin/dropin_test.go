package dropin_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/zklock/dropin"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A behaviour is a row of the contract of zk.Lock: what a user of a handle can see in one situation.
type behaviour struct {
	name      string
	modelOnly bool                     // the row needs faults or an idle state that a real server cannot provide
	run       func(s *scene, h handle) // h is the lock as the first process sees it
	want      string                   // the outcome with zk.Lock, and also with dropin.Lock unless ours is set
	ours      string                   // the outcome with dropin.Lock if it differs
	because   string                   // the beginning of the paragraph in the documentation of dropin.Lock that explains the difference
}

const modelAddr = "127.0.0.1:2181"

func behaviours() []behaviour {
	return slices.Concat(callBehaviours, nodeBehaviours, queueBehaviours, refusalBehaviours, lossBehaviours, outageBehaviours)
}

var implementations = []struct {
	name    string
	newLock func(*zk.Conn, string, []zk.ACL) zkLock
	want    func(behaviour) string
}{
	{
		"zk.Lock",
		func(c *zk.Conn, path string, acl []zk.ACL) zkLock { return zk.NewLock(c, path, acl) },
		func(b behaviour) string { return b.want },
	},
	{
		"dropin.Lock",
		func(c *zk.Conn, path string, acl []zk.ACL) zkLock { return dropin.NewLock(c, path, acl) },
		func(b behaviour) string {
			if b.ours != "" {
				return b.ours
			}
			return b.want
		},
	},
}

func TestLockBehavesLikeThatOfTheLibrary(t *testing.T) {
	for _, b := range behaviours() {
		for _, i := range implementations {
			t.Run(b.name+"/"+i.name, func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					s := closingScene(t, srv)
					s.newLock = i.newLock
					s.play(b, i.want(b))
				})
			})
		}
	}
}

func TestLockBehavesLikeThatOfTheLibraryOnARealServer(t *testing.T) {
	addr := childtest.Start(t, zkserver.Start, zkserver.Config{
		TickTime: 200 * time.Millisecond, NoSync: true, ContainerCheck: 100 * time.Millisecond,
	}).Addr()
	for _, b := range behaviours() {
		if b.modelOnly {
			continue
		}
		for _, i := range implementations {
			t.Run(b.name+"/"+i.name, func(t *testing.T) {
				s := newScene(t, addr, net.DialTimeout)
				s.newLock = i.newLock
				s.path = "/compat-" + strings.NewReplacer(" ", "-", ",", "", "/", "-").Replace(b.name+i.name)
				s.play(b, i.want(b))
			})
		}
	}
}

// The documentation of Lock lists the intentional differences from zk.Lock. Each difference that a row observes has to be in that list, and
// each item of the list has to be observed.
func TestDifferencesAreTheDocumentedOnes(t *testing.T) {
	paragraphs := differences(t)
	seen := make(map[string]bool)
	for _, b := range behaviours() {
		if (b.ours != "") != (b.because != "") || b.ours == b.want {
			t.Errorf("%s: a difference, and only that, needs a reason", b.name)
			continue
		}
		if b.because == "" {
			continue
		}
		i := slices.IndexFunc(paragraphs, func(p string) bool { return strings.HasPrefix(p, b.because) })
		if i < 0 {
			t.Errorf("%s: no paragraph of the list begins with %q", b.name, b.because)
			continue
		}
		seen[paragraphs[i]] = true
	}
	for _, p := range paragraphs {
		need.That(t, "no behaviour shows: "+p, seen[p])
	}
}

// differences returns the items of the list in the documentation of Lock, each in one line.
func differences(t *testing.T) []string {
	t.Helper()
	file := need.Get(parser.ParseFile(token.NewFileSet(), "dropin.go", nil, parser.ParseComments))(t)
	var doc string
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE && g.Specs[0].(*ast.TypeSpec).Name.Name == "Lock" {
			doc = g.Doc.Text()
		}
	}
	var items []string
	for block := range strings.SplitSeq(doc, "\n\n") {
		if _, list, ok := strings.Cut("\n"+block, "\n  - "); ok {
			for item := range strings.SplitSeq(list, "\n  - ") {
				items = append(items, strings.Join(strings.Fields(item), " "))
			}
		}
	}
	need.That(t, "the documentation of Lock has no list", len(items) != 0)
	return items
}
