package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"path"
	"regexp"
	"slices"
)

// A mutant is one change of one file. Its name consists of the file, the function and the text of the change. Line numbers are not part of
// the name, so the name stays the same when the code around the mutant moves.
type mutant struct {
	file     string // path relative to the root, with slashes
	function string
	change   string
	edits    []edit // in the order of the source
	nth      int    // the number of this mutant among those with otherwise equal names, from 1
}

// An edit replaces the bytes of the source from begin up to end.
type edit struct {
	begin, end int
	text       string
}

func (m mutant) String() string {
	id := fmt.Sprintf("%s %s: %s", m.file, m.function, m.change)
	if m.nth > 1 {
		id += fmt.Sprintf(" #%d", m.nth)
	}
	return id
}

func (m mutant) pkg() string { return path.Dir(m.file) }

// The method apply returns the source with the change of the mutant.
func (m mutant) apply(src []byte) []byte {
	var out bytes.Buffer
	at := 0
	for _, e := range m.edits {
		out.Write(src[at:e.begin])
		out.WriteString(e.text)
		at = e.end
	}
	out.Write(src[at:])
	return out.Bytes()
}

// inOrder returns the mutants that match pattern. It shuffles them by seed, and alternates between files. The place of a mutant depends
// only on its name. Therefore a sample stays almost the same when other code changes.
func inOrder(all []mutant, seed uint64, pattern *regexp.Regexp) []mutant {
	rank := func(s string) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, s))
		return string(sum[:])
	}
	byFile := make(map[string][]mutant)
	for _, m := range all {
		if pattern.MatchString(m.String()) {
			byFile[m.file] = append(byFile[m.file], m)
		}
	}
	type place struct {
		round int
		file  string
		m     mutant
	}
	var places []place
	for file, mutants := range byFile {
		slices.SortFunc(mutants, func(a, b mutant) int { return cmp.Compare(rank(a.String()), rank(b.String())) })
		for i, m := range mutants {
			places = append(places, place{i, rank(file), m})
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.file, b.file))
	})
	var queue []mutant
	for _, p := range places {
		queue = append(queue, p.m)
	}
	return queue
}
