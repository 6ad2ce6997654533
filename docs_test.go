package tierlock_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// inBackquotes matches what a document quotes in a line.
var inBackquotes = regexp.MustCompile("`([^`\n]+)`")

// A document that names a file of this repository is wrong when that moves.
func TestDocumentsNameFilesThatAreThere(t *testing.T) {
	aFile := regexp.MustCompile(`^[a-z]+/[\w./*-]+\.(go|md|txt|sh)$`)
	for _, doc := range []string{"README.md", "DESIGN.md", "CONTRIBUTING.md", "SECURITY.md", "docs/capacity.md", "docs/nodes.md"} {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, quoted := range inBackquotes.FindAllStringSubmatch(string(text), -1) {
			if name := quoted[1]; aFile.MatchString(name) {
				if found, err := filepath.Glob(name); err != nil || len(found) == 0 {
					t.Errorf("%s: there is no %s", doc, name)
				}
			}
		}
	}
}

// What CONTRIBUTING.md tells to run of the Makefile is there.
func TestDocumentsNameTargetsThatAreThere(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets, _, _ := strings.Cut(strings.TrimPrefix(string(makefile), ".PHONY: "), "\n")
	known := " " + targets + " "
	for _, doc := range []string{"README.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)").FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(known, " "+target[1]+" ") {
				t.Errorf("%s: there is no make %s", doc, target[1])
			}
		}
	}
}
