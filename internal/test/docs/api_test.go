package docs

import (
	"bytes"
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/tiertest"
)

// The exported API of a package changes only together with its file in the folder api. Go's own folder api has the same purpose.
func TestAPIIsWhatIsWrittenDown(t *testing.T) {
	described := make(map[string]bool)
	for _, dir := range importable(t) {
		file := filepath.Join("api", strings.ReplaceAll(dir, "/", "-")+".txt")
		described[file] = true
		is := api(t, dir)
		if *tiertest.Update {
			need.OK(t, os.WriteFile(file, []byte(is), 0o644))
		}
		written, _ := os.ReadFile(file) // if there is no file, no declaration is written down
		for _, line := range less(is, string(written)) {
			t.Errorf("%s: new, and not in %s: %s", dir, file, line)
		}
		for _, line := range less(string(written), is) {
			t.Errorf("%s: gone, and still in %s: %s", dir, file, line)
		}
	}
	files := need.Get(filepath.Glob("api/*.txt"))(t)
	for _, file := range files {
		need.That(t, file+" describes no package", described[file])
	}
	if t.Failed() {
		t.Log("go test ./internal/test/docs -run API -update writes the change down; CONTRIBUTING.md says what may change")
	}
}

// The function importable returns the folders of all packages for users, including those in nested modules.
func importable(t *testing.T) (dirs []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		switch d.Name() {
		case "internal", "examples", "stress", "cmd", "scripts", "testdata":
			return fs.SkipDir
		}
		if path != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if _, err := build.ImportDir(path, 0); err == nil {
			dirs = append(dirs, path)
		}
		return nil
	})
	if err != nil || !slices.Contains(dirs, "tier") || !slices.Contains(dirs, "contrib/gocronlock") {
		t.Fatalf("packages %q, %v", dirs, err)
	}
	return dirs
}

// The function api returns the exported declarations of a package, sorted, each in one line.
func api(t *testing.T, dir string) string {
	t.Helper()
	found := need.Get(build.ImportDir(dir, 0))(t)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range found.GoFiles {
		file := need.Get(parser.ParseFile(fset, filepath.Join(dir, name), nil, 0))(t)
		files = append(files, file)
	}
	pkg := need.Get(doc.NewFromFiles(fset, files, dir))(t)
	var lines []string
	add := func(node any) {
		var text bytes.Buffer
		need.OK(t, printer.Fprint(&text, fset, node))
		lines = append(lines, strings.Join(strings.Fields(text.String()), " ")+"\n")
	}
	values := func(all []*doc.Value) {
		for _, v := range all {
			add(v.Decl)
		}
	}
	functions := func(all []*doc.Func) {
		for _, f := range all {
			add(f.Decl)
		}
	}
	values(pkg.Consts)
	values(pkg.Vars)
	functions(pkg.Funcs)
	for _, typ := range pkg.Types {
		add(typ.Decl)
		values(typ.Consts)
		values(typ.Vars)
		functions(typ.Funcs)
		functions(typ.Methods)
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// The function less returns the lines of a that are not in b.
func less(a, b string) []string {
	has := strings.Split(b, "\n")
	return slices.DeleteFunc(strings.Split(a, "\n"), func(line string) bool { return slices.Contains(has, line) })
}
