package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestGuardsAreFound(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       []string
	}{
		{"early return", `if a { return }`, []string{"never a"}},
		{"other condition", `if a { f() }`, []string{"never a", "always a", "without f()"}},
		{"operands of one conjunction", `_ = a && b && !c`, []string{"without && a", "without && b", "without && !c"}},
		{"operands of a disjunction", `_ = a || b && c`, []string{"without || a", "without || b && c", "without && b", "without && c"}},
		{"bound", `_ = x <= y`, []string{"with < in x <= y"}},
		{"condition of a switch", `switch { case a, b: return }`, []string{"never a", "never b"}},
		{"value of a switch", `switch x { case 1: return; default: }`, []string{"without case 1"}},
		{"cases of a select", `select { case <-ch: return; default: }`, []string{"without case <-ch", "without default"}},
		{"cleanup", `defer f(); close(ch); go f()`, []string{"without defer f()", "without close(ch)", "without go f()"}},
		{"state", `s.n++; s.v = 1; x = 1; a = true`, []string{"without s.n++", "without s.v = 1", "without a = true"}},
		{"mutex and log", `s.mu.Lock(); defer s.mu.Unlock(); s.log.Debug("")`, nil},
		{"order", `f(); s.v = 1`, []string{"after the next: f()", "without f()", "without s.v = 1"}},
		{"order of a store and what publishes it", `s.v = 1; close(ch)`, []string{"without s.v = 1", "without close(ch)"}},
		{"order of stores alone", `s.v = 1; s.w = 2`, []string{"without s.v = 1", "without s.w = 2"}},
		{"swap", `if s.done.Swap(true) { return }`, []string{"never s.done.Swap(true)", "read only s.done.Swap(true)"}},
		{"exchange", `_ = s.v.CompareAndSwap(0, 1)`, []string{"always s.v.CompareAndSwap(0, 1)"}},
		{"the same twice", `close(ch); close(ch)`, []string{"after the next: close(ch)", "without close(ch)", "without close(ch) #2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := []byte("package p\n\nfunc (s *S) m() {\n" + strings.ReplaceAll(c.body, "; ", "\n") + "\n}\n")
			mutants := need.Get(find("p/p.go", src))(t)
			var got []string
			for _, m := range mutants {
				got = append(got, strings.TrimPrefix(m.String(), "p/p.go S.m: "))
				need.WantErr(t, fmt.Sprintf("%v parses", m), need.ErrOf(parser.ParseFile(token.NewFileSet(), "", m.apply(src), 0)), nil)
			}
			slices.Sort(got)
			slices.Sort(c.want)
			need.List(t, "mutations", got, c.want...)
		})
	}
}

// Every package of the lock has to be in the list. Otherwise its guards would not be tested.
func TestEveryPackageOfTheLockIsListed(t *testing.T) {
	ends := []string{module + "/zklock", module + "/zklock/dropin", module + "/election", module + "/slots", module + "/internal/queue"}
	out := need.Get(exec.Command("go", append([]string{"list", "-deps"}, ends...)...).Output())(t)
	place := make(map[string]int)
	for i, pkg := range packages {
		place[path.Join(module, pkg)] = i
	}
	for _, pkg := range strings.Fields(string(out)) {
		if !strings.HasPrefix(pkg, module) || pkg == module+"/internal/wire" { // the model of ZooKeeper uses this one, too
			continue
		}
		_, ok := place[pkg]
		need.That(t, pkg+" is not listed", ok)
		delete(place, pkg)
	}
	for pkg := range place {
		t.Errorf("%s is listed, and no part of the lock", pkg)
	}
}

func TestAMutantIsOneChange(t *testing.T) {
	const src = "package p\n\nfunc f() {\n\tfor x < y {\n\t\tg() // first\n\t\th()\n\t}\n}\n"
	mutants := need.Get(find("p/p.go", []byte(src)))(t)
	for change, want := range map[string]string{
		"with <= in x < y":    "package p\n\nfunc f() {\n\tfor x <= y {\n\t\tg() // first\n\t\th()\n\t}\n}\n",
		"without g()":         "package p\n\nfunc f() {\n\tfor x < y {\n\t\tif false { g() } // first\n\t\th()\n\t}\n}\n",
		"after the next: g()": "package p\n\nfunc f() {\n\tfor x < y {\n\t\th()\ng()\n\t}\n}\n",
	} {
		i := slices.IndexFunc(mutants, func(m mutant) bool { return m.change == change })
		if i < 0 {
			t.Errorf("no mutant %q", change)
		} else if got := string(mutants[i].apply([]byte(src))); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", change, got, want)
		}
	}
}

// The same seed gives the same sample. A sample covers many files, and stays almost the same when code changes.
func TestOrderIsSeededSpreadAndStable(t *testing.T) {
	var all []mutant
	for _, file := range []string{"a/a.go", "a/b.go", "b/c.go"} {
		for _, change := range []string{"1", "2", "3", "4"} {
			all = append(all, mutant{file: file, change: change})
		}
	}
	any := regexp.MustCompile("")
	names := func(queue []mutant) (names []string) {
		for _, m := range queue {
			names = append(names, m.String())
		}
		return names
	}
	queue := inOrder(all, 1, any)
	files := make(map[string]bool)
	for _, m := range queue[:3] {
		files[m.file] = true
	}
	need.Equal(t, "files of the first three", len(files), 3)
	slices.Reverse(all)
	need.List(t, "found in another order", names(inOrder(all, 1, any)), names(queue)...)
	need.That(t, "another seed makes no difference", !slices.Equal(names(inOrder(all, 2, any)), names(queue)))
	last := queue[len(queue)-1].String()
	rest := slices.DeleteFunc(all, func(m mutant) bool { return m.String() == last })
	need.List(t, "without the last", names(inOrder(rest, 1, any)), names(queue[:len(queue)-1])...)
}

func TestEquivalentsHaveReasons(t *testing.T) {
	need.Get(equivalents())(t)
	got, err := parse("# c\n\na/b.go f: without g()\n\tIt does\n\tnothing.\n")
	need.WantErr(t, "parse", err, nil)
	need.Equal(t, "the reason", got["a/b.go f: without g()"], "It does nothing.")
	for _, text := range []string{"a\nb\n\tfor both\n", "a\n", "\tfor nothing\n", "a\n\tone\na\n\ttwo\n"} {
		need.That(t, "no error: "+text, need.ErrOf(parse(text)) != nil)
	}
}
