package zkqueue

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
)

func TestTwoNamesArePairedIfOneTransactionMadeThem(t *testing.T) {
	const mutex = "_c_01234567-89ab-4def-8123-456789abcdef-lock-0000000003"
	for _, tt := range []struct {
		first, second string
		want          bool
	}{
		{mutex, "_c_01234567-89ab-4def-8123-456789abcdef-__lock__0000000004", true},
		{mutex, "_c_01234567-89ab-4def-8123-456789abcdef-__lock__0000000005", false},
		{mutex, "_c_01234567-89ab-4def-8123-456789abcdee-__lock__0000000004", false},
		{mutex, "_c_01234567-89ab-4def-8123-456789abcdef-__WRIT__0000000004", false},
		{mutex, "0123456789abcdef0123456789abcdef__lock__0000000004", false},
		{"lock-0000000003", "__lock__0000000004", false},
		{"_c_x-__WRIT__0000000003", "_c_x-__lock__0000000004", true},
		{"_c_x-__READ__0000000003", "_c_x-__rlock__0000000004", true},
		{"_c_x-__READ__0000000003", "_c_x-__lock__0000000004", false},
		{"_c_x-__WRIT__0000000003", "_c_x-__rlock__0000000004", false},
		{"_c_x-__WRIT__0000000003", "_c_x-__READ__0000000004", false},
	} {
		queue, _ := Parse([]string{tt.second, tt.first})
		need.Equal(t, fmt.Sprintf("%s, %s", tt.first, tt.second), queue[0].Pair == tt.second, tt.want)
	}
}

// docs/nodes.md shows the content of a node, and operators rely on it. The test compares that example with the code.
func TestDocumentedContentIsThatOfANode(t *testing.T) {
	text := need.Get(os.ReadFile("../../docs/nodes.md"))(t)
	var want, got []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[second.Description]()) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		want = append(want, name)
		row := regexp.MustCompile("(?m)^\\| `" + name + "` .*$").FindString(string(text))
		need.Equal(t, "left out at times, by docs/nodes.md: "+row, strings.Contains(row, "left out if"), options == "omitempty")
	}
	_, table, _ := strings.Cut(string(text), "\n| field ")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)`").FindAllStringSubmatch(table, -1) {
		got = append(got, row[1])
	}
	need.List(t, "documented in docs/nodes.md", got, want...)

	example := regexp.MustCompile(`(?m)^\{.*\}$`).Find(text)
	var d second.Description
	strict := json.NewDecoder(bytes.NewReader(example))
	strict.DisallowUnknownFields()
	need.WantErr(t, "the example in docs/nodes.md, "+string(example), strict.Decode(&d), nil)
	// Encoding sets the time of the linger, which therefore is removed first.
	linger := time.Duration(d.Linger) * time.Millisecond
	d.Linger = 0
	now := second.HeadOf(d).Now(linger)
	need.That(t, "nothing lingers, and it is said", !bytes.Contains(second.HeadOf(d).Now(0), []byte("linger")))
	theTime := regexp.MustCompile(`"time":"[^"]*Z"`)
	need.Equal(t, "the example in docs/nodes.md", string(theTime.ReplaceAll(example, nil)), string(theTime.ReplaceAll(now, nil)))

	names := regexp.MustCompile(`_c_\S*-lock-\d{10}`).FindAllString(string(text), -1)
	if queue, others := Parse(names); len(queue) != 3 || len(others) != 0 { // the document shows one of the names twice
		t.Errorf("docs/nodes.md names %q", names)
	} else if !Ours(queue[0].Node) {
		t.Errorf("docs/nodes.md shows %s, which is not a node of tierlock", queue[0].Node)
	}
}
