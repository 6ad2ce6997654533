package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// A person has checked each mutant in this list: it changes nothing that can be observed, for the reason that is stated below it.
//
//go:embed equivalent.txt
var listed string

// equivalents returns the listed mutants with their reasons.
func equivalents() (map[string]string, error) { return parse(listed) }

// The function parse reads the list. Each mutant has a line, and the indented lines after it contain the reason.
func parse(text string) (map[string]string, error) {
	reasons := make(map[string]string)
	last := ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || line[0] == '#':
		case line[0] != '\t':
			if last != "" && reasons[last] == "" {
				return nil, fmt.Errorf("equivalent.txt: no reason for %q", last)
			}
			if _, ok := reasons[trimmed]; ok {
				return nil, fmt.Errorf("equivalent.txt: %q is listed twice", trimmed)
			}
			last = trimmed
			reasons[last] = ""
		case last == "":
			return nil, fmt.Errorf("equivalent.txt: a reason for nothing: %q", trimmed)
		default:
			reasons[last] = strings.TrimSpace(reasons[last] + " " + trimmed)
		}
	}
	if last != "" && reasons[last] == "" {
		return nil, fmt.Errorf("equivalent.txt: no reason for %q", last)
	}
	return reasons, nil
}

// The function unknown returns the listed mutants that do not exist.
func unknown(reasons map[string]string, all []mutant) []string {
	known := make(map[string]bool)
	for _, m := range all {
		known[m.String()] = true
	}
	var ids []string
	for id := range reasons {
		if !known[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
