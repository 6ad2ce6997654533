package store

import (
	"encoding/json"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestTaskNamesItsStore(t *testing.T) {
	for _, want := range all {
		text := need.Get(json.Marshal(want))(t)
		var got Store
		if err := json.Unmarshal(text, &got); err != nil || got.Name != want.Name || len(got.Locks) != len(want.Locks) {
			t.Errorf("%s: got %q with %d locks, %v", text, got.Name, len(got.Locks), err)
		}
		for _, lock := range append(got.BaselinesOf("mutex"), "mutex") {
			need.That(t, got.Name+" has no lock "+lock, got.Locks[lock].Dial != nil)
		}
		need.Equal(t, want.Name+" by name", need.Get(Named(want.Name))(t), want)
	}
	need.That(t, "a store of another name: no error", json.Unmarshal([]byte(`"none"`), new(Store)) != nil)
}
