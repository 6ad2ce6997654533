package docs

import (
	"path/filepath"
	"testing"

	"github.com/tierlock/tierlock/internal/test/tiertest"
)

// The file docs/promises.md contains the promises of each store, as the tests of that store have recorded them.
func TestPromisesOfEachStoreAreInOneTable(t *testing.T) {
	var files []string
	for _, store := range []string{"zookeeper", "etcd", "postgres", "postgres-advisory", "mysql", "redis"} {
		files = append(files, filepath.Join("docs", "promises", store+".md"))
	}
	if all, err := filepath.Glob("docs/promises/*.md"); err != nil || len(all) != len(files) {
		t.Fatalf("recorded promises: %v (%v), want %v", all, err, files)
	}
	tiertest.Summarize(t, "docs/promises.md", files...)
}
