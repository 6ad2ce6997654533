package zklock

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// People read nodes with other tools, and go by this document.
func TestDocumentedContentIsThatOfANode(t *testing.T) {
	text, err := os.ReadFile("../docs/nodes.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[description]()) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		want = append(want, name)
		row := regexp.MustCompile("(?m)^\\| `" + name + "` .*$").FindString(string(text))
		if optional := options == "omitempty"; strings.Contains(row, "left out if") != optional {
			t.Errorf("docs/nodes.md says %q; left out at times: %v", row, optional)
		}
	}
	_, table, _ := strings.Cut(string(text), "\n| field ")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)`").FindAllStringSubmatch(table, -1) {
		got = append(got, row[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/nodes.md documents %q, and a node has %q", got, want)
	}

	example := regexp.MustCompile(`(?m)^\{.*\}$`).Find(text)
	var d description
	strict := json.NewDecoder(bytes.NewReader(example))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&d); err != nil {
		t.Fatalf("the example in docs/nodes.md, %s: %v", example, err)
	}
	// Encoding sets the time.
	now := d.encode(time.Duration(d.Linger) * time.Millisecond)
	theTime := regexp.MustCompile(`"time":"[^"]*Z"`)
	if !bytes.Equal(theTime.ReplaceAll(now, nil), theTime.ReplaceAll(example, nil)) {
		t.Errorf("docs/nodes.md shows %s, and a node has %s", example, now)
	}

	names := regexp.MustCompile(`_c_\S*-lock-\d{10}`).FindAllString(string(text), -1)
	if queue, others := ParseQueue(names); len(queue) != 3 || len(others) != 0 { // one of them twice
		t.Errorf("docs/nodes.md names %q", names)
	} else if queue[0].Kind != KindTierlock {
		t.Errorf("docs/nodes.md shows nodes of %s", queue[0].Kind)
	}
}
