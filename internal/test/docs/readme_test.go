package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// The constant given declares the names that snippets may use without a declaration of their own, because the text around the snippets
// declares them.
const given = `package snippet

import (
	"context"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/tier"
)

var (
	ctx     context.Context
	path    string
	acl     []zk.ACL
	conn    *zk.Conn
	locks   *tier.Registry
	hold    *tier.Hold
)

func write(ctx context.Context, token int64) error { return nil }
func report(ctx context.Context) error            { return nil }
`

// packages are the packages that a snippet may use without importing them.
var packages = map[string]string{
	"context":   "context",
	"errors":    "errors",
	"fmt":       "fmt",
	"log":       "log",
	"dropin":    "github.com/tierlock/tierlock/zklock/dropin",
	"election":  "github.com/tierlock/tierlock/election",
	"memlock":   "github.com/tierlock/tierlock/memlock",
	"mutexbool": "github.com/tierlock/tierlock/mutexbool",
	"os":        "os",
	"slots":     "github.com/tierlock/tierlock/slots",
	"slog":      "log/slog",
	"synctest":  "testing/synctest",
	"testing":   "testing",
	"tier":      "github.com/tierlock/tierlock/tier",
	"time":      "time",
	"zk":        "github.com/go-zookeeper/zk",
	"zklock":    "github.com/tierlock/tierlock/zklock",
	"zktest":    "github.com/tierlock/tierlock/zklock/zktest",
}

// A snippet is a block of Go in a document: a file, declarations, or statements.
type snippet struct {
	doc  string
	line int // line number of its first line in doc
	code string
}

// Every block of Go in the documents compiles.
func TestDocumentedGoCompiles(t *testing.T) {
	docs, err := filepath.Glob("*.md")
	more, err2 := filepath.Glob("docs/*.md")
	need.OK(t, errors.Join(err, err2))
	docs = append(docs, more...)
	need.Must(t, fmt.Sprintf("no README.md among %q", docs), slices.Contains(docs, "README.md"))
	for _, doc := range docs {
		for _, s := range snippets(t, doc) {
			t.Run(fmt.Sprintf("%s:%d", filepath.Base(doc), s.line), func(t *testing.T) {
				need.WantErr(t, "compiled", s.compile(t), nil)
			})
		}
	}
}

func TestWrongSnippetIsReportedWhereItStands(t *testing.T) {
	for _, code := range []string{
		"locks, err := zklock.Dial(ctx, nil, tier.WithRounds())\nif err != nil {\n\treturn err\n}\ndefer locks.Close()\n",
		"func dial() (*tier.Registry, error) { return zklock.Dial(ctx, nil, tier.WithRounds()) }\n",
		"package main\n\nfunc main() { return 1 }\n",
		"hold, err :=\n",
	} {
		err := snippet{"WRONG.md", 117, code}.compile(t)
		need.WantMention(t, err, "WRONG.md:11")
	}
}

// fence matches a block of Go.
var fence = regexp.MustCompile("(?ms)^[ \t]*```go\\b[^\n]*\n(.*?)^[ \t]*```")

func snippets(t *testing.T, doc string) []snippet {
	t.Helper()
	text := need.Get(os.ReadFile(doc))(t)
	var found []snippet
	for _, at := range fence.FindAllSubmatchIndex(text, -1) {
		from, to := at[2], at[3]
		line := 1 + strings.Count(string(text[:from]), "\n")
		found = append(found, snippet{doc, line, string(text[from:to])})
	}
	need.That(t, "no Go found in README.md", doc != "README.md" || len(found) != 0)
	return found
}

// The method compile builds the snippet in a package of its own, as if that package were in this module.
func (s snippet) compile(t *testing.T) error {
	t.Helper()
	source, whole, err := s.source()
	if err != nil {
		return err
	}
	const dir = "internal/snippet" // exists only in the overlay
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	put := func(name, content string) {
		path := filepath.Join(t.TempDir(), name)
		overlay.Replace[filepath.Join(dir, name)] = path
		need.OK(t, os.WriteFile(path, []byte(content), 0o600))
	}
	put("snippet.go", source)
	if !whole {
		put("given.go", given)
	}
	list := need.Get(json.Marshal(overlay))(t)
	file := filepath.Join(t.TempDir(), "overlay.json")
	need.OK(t, os.WriteFile(file, list, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, "-overlay", file, "./"+dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s\n%s", err, out, s.code)
	}
	return nil
}

// The method source turns the snippet into a file. If the snippet already is a whole file, whole is true.
func (s snippet) source() (source string, whole bool, err error) {
	doc, err := filepath.Abs(s.doc)
	if err != nil {
		return "", false, err
	}
	code := fmt.Sprintf("\n//line %s:%d\n%s", doc, s.line, s.code)
	if _, err := parse(code); err == nil {
		return code, true, nil
	}
	if file, err := parse("package snippet\n" + code); err == nil {
		return "package snippet\n" + imports(file) + code, false, nil
	}
	code = "\nfunc _() error {" + code + "\nreturn nil\n}\n"
	file, err := parse("package snippet\n" + code)
	if err != nil {
		return "", false, err
	}
	return "package snippet\n" + imports(file) + code, false, nil
}

func parse(code string) (*ast.File, error) { return parser.ParseFile(token.NewFileSet(), "", code, 0) }

// The function imports returns import declarations for the packages that a file uses. If the file has imports of its own, it returns "".
func imports(file *ast.File) string {
	if len(file.Imports) > 0 {
		return ""
	}
	used := make(map[string]bool)
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if name, ok := s.X.(*ast.Ident); ok && packages[name.Name] != "" {
				used[packages[name.Name]] = true
			}
		}
		return true
	})
	var lines strings.Builder
	for _, path := range slices.Sorted(maps.Keys(used)) {
		fmt.Fprintf(&lines, "import %q\n", path)
	}
	return lines.String()
}
