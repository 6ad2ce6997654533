package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// If no example uses an exported name, the name is either unnecessary or unexplained. An example uses a type if an expression in the
// example has that type.
func TestEachNameOfTierIsUsedByAnExample(t *testing.T) {
	files := token.NewFileSet()
	packages, imports := make(map[string][]*ast.File), make(map[string]bool) // files of packages, by folder and package name
	for _, pattern := range []string{"tier/example*_test.go", "examples/*/*.go", "examples/*/*/*.go"} {
		for _, name := range need.Get(filepath.Glob(pattern))(t) {
			file := need.Get(parser.ParseFile(files, name, nil, 0))(t)
			of := filepath.Dir(name) + " " + file.Name.Name
			packages[of] = append(packages[of], file)
			for _, spec := range file.Imports {
				imports[need.Get(strconv.Unquote(spec.Path.Value))(t)] = true
			}
		}
	}
	from := compiled(t, slices.Sorted(maps.Keys(imports))...)
	used := map[string]bool{"New": true, "GuardOf": true} // only stores need these two names
	use := func(o types.Object) {
		if pkg := o.Pkg(); pkg != nil && pkg.Path() == module+"tier" && o.Parent() == pkg.Scope() {
			used[o.Name()] = true
		}
	}
	for of, all := range packages {
		info := types.Info{Uses: make(map[*ast.Ident]types.Object), Types: make(map[ast.Expr]types.TypeAndValue)}
		// Errors are expected here, for example if another test file declares a name.
		config := types.Config{Importer: from, Error: func(error) {}}
		config.Check(of, files, all, &info)
		for _, o := range info.Uses {
			use(o)
		}
		for _, e := range info.Types {
			switch typ := e.Type.(type) {
			case *types.Named:
				use(typ.Obj())
			case *types.Pointer:
				if named, ok := typ.Elem().(*types.Named); ok {
					use(named.Obj())
				}
			}
		}
	}
	names := need.Get(from.Import(module + "tier"))(t).Scope().Names()
	for _, name := range names {
		need.That(t, "no example uses tier."+name, used[name] || !token.IsExported(name))
	}
}
