package sim

import (
	"slices"
	"strconv"
	"testing"
)

// A scenario is named after what must happen.
type scenario struct {
	name string
	run  func(t *testing.T)
}

func runAll(t *testing.T, scenarios []scenario) {
	for _, sc := range scenarios {
		t.Run(sc.name, sc.run)
	}
}

// The edge cases of a lock on ZooKeeper are numbered from 1 to lastCase, in the order
// in which a lock lives: before and at create, waiting, holding, session and client.
const lastCase = 75

// notPlayed are the cases that no scenario can play, and why.
var notPlayed = map[int]string{
	36: "a closed watch channel is no wake: no watch channel is read, events come from the library's callback",
	45: "a suspended machine: its monotonic clock stands still, so no process can notice; that is what tokens are for",
	64: "heavy traffic of the user on the connection: a client shares its connection with nobody",
	65: "a callback that blocks or panics: users cannot give one, and ours only sets booleans",
}

func TestEveryCaseIsPlayedOrExplained(t *testing.T) {
	scenarios := slices.Concat(
		createScenarios, parentScenarios, limitScenarios, waitingScenarios, holdingScenarios, serverScenarios, sessionScenarios)
	times := make(map[int]int)
	for _, sc := range scenarios {
		n, err := strconv.Atoi(sc.name[:2])
		if err != nil || sc.name[2] != '_' {
			t.Fatalf("scenario %q: want a case number and what must happen", sc.name)
		}
		times[n]++
	}
	for n, reason := range notPlayed {
		t.Logf("%d is not played: %s", n, reason)
		times[n]++
	}
	for n := 1; n <= lastCase; n++ {
		if times[n] != 1 {
			t.Errorf("case %d is covered %d times", n, times[n])
		}
		delete(times, n)
	}
	for n := range times {
		t.Errorf("there is no case %d", n)
	}
}
