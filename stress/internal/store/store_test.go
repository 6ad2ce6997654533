package store

import (
	"encoding/json"
	"testing"

	"github.com/tierlock/tierlock/internal/need"
)

func TestTaskNamesItsStore(t *testing.T) {
	for _, want := range all {
		text := need.Get(json.Marshal(want))(t)
		var got Store
		if err := json.Unmarshal(text, &got); err != nil || got.Name != want.Name || len(got.Locks) != len(want.Locks) {
			t.Errorf("%s: got %q with %d locks, %v", text, got.Name, len(got.Locks), err)
		}
		for _, lock := range append(got.BaselinesOf("mutex"), "mutex") {
			if got.Locks[lock].Dial == nil {
				t.Errorf("%s has no lock %q", got.Name, lock)
			}
		}
		if named, err := Named(want.Name); named != want || err != nil {
			t.Errorf("%s by name: got %v, %v", want.Name, named, err)
		}
	}
	if err := json.Unmarshal([]byte(`"none"`), new(Store)); err == nil {
		t.Error("a store of another name: no error")
	}
}
