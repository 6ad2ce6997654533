package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// The pattern avoided matches words that hide the subject of a sentence, or that make its verb passive.
var avoided = regexp.MustCompile(`(?i)\b(whoever|whom|for ever|(?:is|are) told|so is it|nor does|of which)\b`)

// The pattern avoidedInComments also matches two words that are allowed in texts for users, but not in comments.
var avoidedInComments = regexp.MustCompile(avoided.String() + `|(?i)\b(nobody|somebody)\b`)

// forUsers matches the documents that users read.
var forUsers = regexp.MustCompile(`^((README|SECURITY)\.md|docs/.+\.(md|yaml|json)|(contrib|examples)/.+\.md)$`)

// mostAvoided is the largest permitted number of such words in comments. Lower it when the test asks for that; never raise it.
const mostAvoided = 40

// Texts for users must not contain any of these words. Their number in comments may only become smaller.
func TestTextsNameTheirSubjects(t *testing.T) {
	comments, texts := written(t)
	for where, text := range texts {
		for _, word := range avoided.FindAllString(spaced(text), -1) {
			t.Errorf("%s has %q: name the subject", where, word)
		}
	}
	found := 0
	for _, text := range comments {
		found += len(avoidedInComments.FindAllString(spaced(text), -1))
	}
	need.Between(t, "words in comments that name no subject; lower mostAvoided when there are fewer", found, mostAvoided-50, mostAvoided)
}

// The function spaced returns a text in one line. Therefore a phrase is also found if it spans two lines.
func spaced(text string) string { return strings.Join(strings.Fields(text), " ") }

// The function written returns the comments of all Go, SQL and Lua files by place, and the texts for users. These texts are documents, the
// documentation of exported declarations, and string literals outside of tests.
func written(t *testing.T) (comments, texts map[string]string) {
	t.Helper()
	comments, texts = make(map[string]string), make(map[string]string)
	files := token.NewFileSet()
	walk := func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if forUsers.MatchString(name) {
			texts[name] = string(need.Get(os.ReadFile(name))(t))
		}
		if ext := filepath.Ext(name); ext == ".sql" || ext == ".lua" {
			for line := range strings.Lines(string(need.Get(os.ReadFile(name))(t))) {
				_, comment, _ := strings.Cut(line, "-- ")
				comments[name] += comment
			}
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		file := need.Get(parser.ParseFile(files, name, need.Get(os.ReadFile(name))(t), parser.ParseComments))(t)
		at := func(n ast.Node) string { return fmt.Sprint(files.Position(n.Pos())) }
		isTest := strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "internal/test/") || strings.HasPrefix(name, "stress/")
		public := make(map[*ast.CommentGroup]bool)
		if !isTest && !strings.Contains(name, "internal/") && !strings.HasPrefix(name, "cmd/") {
			public = documentation(file)
		}
		for _, c := range file.Comments {
			if public[c] {
				texts[at(c)] = c.Text()
			} else {
				comments[at(c)] = c.Text()
			}
		}
		if isTest {
			return nil
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
				texts[at(s)] = s.Value
			}
			return true
		})
		return nil
	}
	need.Must(t, "read all files", filepath.WalkDir(".", walk) == nil)
	return comments, texts
}

// documentation returns the comments that go doc shows.
func documentation(file *ast.File) map[*ast.CommentGroup]bool {
	found := map[*ast.CommentGroup]bool{file.Doc: true}
	fields := func(list *ast.FieldList) {
		for _, f := range list.List {
			if len(f.Names) == 0 || f.Names[0].IsExported() {
				found[f.Doc], found[f.Comment] = true, true
			}
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			found[d.Doc] = found[d.Doc] || d.Name.IsExported()
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if !s.Name.IsExported() {
						continue
					}
					found[d.Doc], found[s.Doc], found[s.Comment] = true, true, true
					switch of := s.Type.(type) {
					case *ast.StructType:
						fields(of.Fields)
					case *ast.InterfaceType:
						fields(of.Methods)
					}
				case *ast.ValueSpec:
					if s.Names[0].IsExported() {
						found[d.Doc], found[s.Doc], found[s.Comment] = true, true, true
					}
				}
			}
		}
	}
	delete(found, nil)
	return found
}
