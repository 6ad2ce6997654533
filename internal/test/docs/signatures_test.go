package docs

import (
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// Exported declarations must not mention internal types, because a program cannot name such a type, and go doc does not show its methods.
// There are two exceptions, for the stores of this module.
func TestExportedDeclarationsMentionNoInternalType(t *testing.T) {
	var found []string
	for _, pkg := range exported(t) {
		m := mentions{of: pkg, seen: make(map[types.Type]bool)}
		scope := pkg.Scope()
		for _, name := range scope.Names() {
			if m.at = pkg.Name() + "." + name; token.IsExported(name) {
				m.look(scope.Lookup(name).Type())
			}
		}
		found = append(found, m.found...)
	}
	need.List(t, "internal types", found, "tier.GuardOf: second.Guard", "tier.New: second.Tier")
}

// The function exported returns the packages for users, as the compiler shows them to an importer.
func exported(t *testing.T) (all []*types.Package) {
	t.Helper()
	var paths []string
	for _, dir := range importable(t) {
		paths = append(paths, module+dir)
	}
	from := compiled(t, paths...)
	for _, path := range paths {
		all = append(all, need.Get(from.Import(path))(t))
	}
	return all
}

// The function compiled returns an importer that reads the compiler's export data of the given packages and of all that they import.
func compiled(t *testing.T, paths ...string) types.Importer {
	t.Helper()
	files := make(map[string]string)
	list := append([]string{"go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)
	for line := range strings.Lines(run(t, ".", nil, list...)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
	return importer.ForCompiler(token.NewFileSet(), "gc", open)
}

// A mentions value contains the internal types in the API of a package. For each type, it has the first declaration that mentions it.
type mentions struct {
	of    *types.Package
	at    string // the declaration that is being checked
	seen  map[types.Type]bool
	found []string
}

func (m *mentions) look(t types.Type) {
	if m.seen[t] {
		return
	}
	m.seen[t] = true
	switch t := t.(type) {
	case *types.Alias:
		m.name(t.Obj())
		m.look(t.Rhs())
	case *types.Named:
		m.name(t.Obj())
		for arg := range t.TypeArgs().Types() {
			m.look(arg)
		}
		if t.Obj().Pkg() == m.of { // the types of other packages are checked with their own package
			m.look(t.Underlying())
			for method := range types.NewMethodSet(types.NewPointer(t)).Methods() {
				m.member(method.Obj())
			}
		}
	case *types.Struct:
		for field := range t.Fields() {
			m.member(field)
		}
	case *types.Interface:
		for method := range t.Methods() {
			m.member(method)
		}
	case *types.Signature:
		for _, all := range []*types.Tuple{t.Params(), t.Results()} {
			for v := range all.Variables() {
				m.look(v.Type())
			}
		}
	case *types.Map:
		m.look(t.Key())
		m.look(t.Elem())
	case interface{ Elem() types.Type }: // a pointer, a slice, an array, a channel
		m.look(t.Elem())
	}
}

func (m *mentions) member(o types.Object) {
	if o.Exported() {
		m.look(o.Type())
	}
}

func (m *mentions) name(o *types.TypeName) {
	if pkg := o.Pkg(); pkg != nil && strings.HasPrefix(pkg.Path(), module) && slices.Contains(strings.Split(pkg.Path(), "/"), "internal") {
		m.found = append(m.found, m.at+": "+pkg.Name()+"."+o.Name())
	}
}
