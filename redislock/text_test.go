package redislock

import (
	"strings"
	"testing"
)

// The value of a key that another library has set is shown as a short line.
func TestTheValueOfAForeignKeyIsShownPlainly(t *testing.T) {
	t.Parallel()
	client, path := outside(t), lockPath(t)
	if err := client.Set(t.Context(), path, "\x1b[2J\n\u202e\xff"+strings.Repeat("x", 1<<20), 0).Err(); err != nil {
		t.Fatal(err)
	}
	queue, err := start(t).at(t, path).Contenders(soon(t))
	if err != nil || len(queue) != 1 {
		t.Fatalf("%d contenders, %v", len(queue), err)
	}
	if id := queue[0].ID; !strings.HasPrefix(id, `\x1b[2J\n\u202e\xffxxx`) || !strings.HasSuffix(id, "x…") || len(id) > 300 {
		t.Errorf("%.300q", id)
	}
}
