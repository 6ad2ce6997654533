package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

const module = "github.com/tierlock/tierlock/"

// A program that uses the library contains no test code.
func TestLibraryImportsNoTestCode(t *testing.T) {
	imports := importsOf(t)
	for dir, by := range library(t, imports) {
		need.That(t, by+" imports "+dir+", outside of tests", !strings.HasPrefix(dir, "internal/test/"))
	}
}

// Packages that only tests import have to be below internal/test. Packages that only the command or the adapters import have to be below
// these. A package in internal/ must not import packages of this repository from outside of internal/, except mutexbool, which itself
// imports nothing.
func TestInternalPackagesAreOfTheLibrary(t *testing.T) {
	imports := importsOf(t)
	used := library(t, imports)
	for dir, all := range imports {
		if !strings.HasPrefix(dir, "internal/") || strings.HasPrefix(dir, "internal/test/") {
			continue
		}
		need.That(t, dir+" is imported by nothing of the library; it belongs to internal/test", used[dir] != "")
		for _, imported := range all {
			below := strings.HasPrefix(imported, "internal/") || imported == "mutexbool"
			need.That(t, dir+" imports "+imported+", which stands above it", below)
		}
	}
}

// The root of the repository contains only folders and documents.
func TestRootHasNoGoFile(t *testing.T) {
	need.Empty(t, "Go files in the root", need.Get(filepath.Glob("*.go"))(t))
}

// The function library returns the packages that users can import, and all packages that these import. For each package, it returns one
// package that imports it.
func library(t *testing.T, imports map[string][]string) map[string]string {
	t.Helper()
	by := make(map[string]string)
	var add func(dir, importer string)
	add = func(dir, importer string) {
		if by[dir] != "" {
			return
		}
		by[dir] = importer
		for _, imported := range imports[dir] {
			add(imported, dir)
		}
	}
	for _, dir := range importable(t) {
		add(dir, "a user")
	}
	return by
}

// importsOf returns, for each package of this repository, the packages of this repository that it imports on any system. Imports in tests
// do not count. Packages are named by their folders.
func importsOf(t *testing.T) map[string][]string {
	t.Helper()
	imports := make(map[string][]string)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || path != "." && strings.HasPrefix(name, ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file := need.Get(parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly))(t)
		dir := filepath.ToSlash(filepath.Dir(path))
		all := imports[dir]
		for _, spec := range file.Imports {
			if imported, ours := strings.CutPrefix(need.Get(strconv.Unquote(spec.Path.Value))(t), module); ours {
				all = append(all, imported)
			}
		}
		imports[dir] = all // also recorded if the package imports none
		return nil
	})
	need.OK(t, err)
	need.AtLeast(t, "packages", len(imports), 60)
	return imports
}
