package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// inBackquotes matches text in backquotes within a line.
var inBackquotes = regexp.MustCompile("`([^`\n]+)`")

// Documents may name only files that exist.
func TestDocumentsNameFilesThatAreThere(t *testing.T) {
	aFile := regexp.MustCompile(`^[a-z]+/[\w./*-]+\.(go|md|txt|sh)$`)
	for doc, text := range documents(t) {
		for _, quoted := range inBackquotes.FindAllStringSubmatch(text, -1) {
			if name := quoted[1]; aFile.MatchString(name) {
				need.AtLeast(t, doc+": files "+name, len(need.Get(filepath.Glob(name))(t)), 1)
			}
		}
	}
}

// aLink matches the target of a link or picture, without the part after a #.
var aLink = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	for doc, text := range documents(t) {
		for _, link := range aLink.FindAllStringSubmatch(text, -1) {
			if to := link[1]; !strings.Contains(to, "://") {
				need.WantErr(t, doc+" links to "+to, need.ErrOf(os.Stat(filepath.Join(filepath.Dir(doc), to))), nil)
			}
		}
	}
}

// The documents that visitors and contributors read first have to stay short.
func TestFirstDocumentsAreShort(t *testing.T) {
	for doc, most := range map[string]int{"README.md": 130, "DESIGN.md": 350} {
		need.AtMost(t, "lines of "+doc+", whose details go to docs, or stand beside the code", strings.Count(documents(t)[doc], "\n"), most)
	}
}

// The function documents returns the texts of the documents of this module, by file name.
func documents(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, pattern := range []string{"*.md", "docs/*.md", "*/DESIGN.md"} {
		names := need.Get(filepath.Glob(pattern))(t)
		for _, name := range names {
			text := need.Get(os.ReadFile(name))(t)
			found[name] = string(text)
		}
	}
	need.That(t, "README.md or docs/guide.md is missing", found["README.md"] != "" && found["docs/guide.md"] != "")
	return found
}

// Documents may name only targets of make that exist.
func TestDocumentsNameTargetsThatAreThere(t *testing.T) {
	makefile := need.Get(os.ReadFile("Makefile"))(t)
	targets, _, _ := strings.Cut(strings.TrimPrefix(string(makefile), ".PHONY: "), "\n")
	known := " " + targets + " "
	for doc, text := range documents(t) {
		for _, target := range regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)").FindAllStringSubmatch(text, -1) {
			need.That(t, doc+": there is no make "+target[1], strings.Contains(known, " "+target[1]+" "))
		}
	}
}

// Users copy examples into their own programs. Therefore an example imports only packages that other programs may import.
func TestExamplesImportNothingInternal(t *testing.T) {
	for _, pattern := range []string{"example*_test.go", "*/example*_test.go", "*/*/example*_test.go", "examples/*/main.go"} {
		for _, name := range need.Get(filepath.Glob(pattern))(t) {
			text := need.Get(os.ReadFile(name))(t)
			need.That(t, name+" imports an internal package", !strings.Contains(string(text), "tierlock/internal/"))
		}
	}
}

// The documentation explains each message that may appear in the log. If only one store logs a message, the documentation of the store's
// WithLogger explains it.
func TestMessagesOfTheLogAreListed(t *testing.T) {
	message := regexp.MustCompile(`(?:Package ?\+ ?": |"tier: (?:a goroutine|a hold|log lines) )([a-z][a-z ]+)`)
	list := string(need.Get(os.ReadFile("docs/operate.md"))(t))
	found := 0
	for _, pattern := range []string{"internal/notice/*.go", "internal/queue/*.go", "tier/*.go"} {
		for _, file := range need.Get(filepath.Glob(pattern))(t) {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, m := range message.FindAllStringSubmatch(string(need.Get(os.ReadFile(file))(t)), -1) {
				found++
				need.That(t, file+" logs what docs/operate.md does not list: "+m[1], strings.Contains(list, strings.TrimSpace(m[1])))
			}
		}
	}
	need.AtLeast(t, "messages found, or the pattern has gone out of use", found, 12)
}
