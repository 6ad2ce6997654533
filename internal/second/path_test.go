package second

import (
	"strings"
	"testing"
)

func TestPathsOfLocks(t *testing.T) {
	for _, of := range []struct {
		rule  func(string) error
		paths map[string]bool // by path: whether it is valid
	}{
		{nil, map[string]bool{
			"x": true, "/": true, "a//b": true, "/schlösser/ü 1": true, "": false, "l\xff": false, "a\nb": false,
			strings.Repeat("x", 1024): true, strings.Repeat("x", 1025): false,
		}},
		{Components, map[string]bool{
			"/locks/x": true, "locks/x": true, "/": false, "": false, "/locks/": false, "/locks//x": false, "/a\nb": false,
		}},
	} {
		for path, ok := range of.paths {
			if err := CheckPath("store", path, of.rule); (err == nil) != ok || err != nil && !strings.HasPrefix(err.Error(), "store: lock path ") {
				t.Errorf("%.40q: %v", path, err)
			}
		}
	}
}
