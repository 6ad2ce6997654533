package zkqueue

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestParseName(t *testing.T) {
	const hex = "0123456789abcdef0123456789abcdef"
	const uuid = "01234567-89ab-4def-8123-456789abcdef"
	for _, tt := range []struct {
		name     string
		kind     Kind // "" for a child that is no contender
		sequence int32
	}{
		// These are the kinds of nodes below lock paths, with the programs that create them.
		{"_c_" + uuid + "-lock-0000000007", KindMutex, 7}, // tierlock, and Curator's InterProcessMutex
		{"_c_" + hex + "-lock-0000000007", KindMutex, 7},  // zk.Lock
		{"lock-0000000007", KindMutex, 7},                 // curator.go
		{"_c_" + uuid + "-__WRIT__0000000007", KindWrite, 7},
		{"_c_" + uuid + "-__READ__0000000007", KindRead, 7},
		{hex + "__lock__0000000007", KindKazoo, 7},
		{hex + "__rlock__0000000007", KindKazooRead, 7},
		{"x-72057594037927936-0000000007", "", 0},  // ZooKeeper's Java recipe
		{"x--72057594037927936-0000000007", "", 0}, // the same recipe, with a negative session ID
		{"x-0100000000000000-0000000007", "", 0},   // ZooKeeper's C recipe
		{"0000000007", "", 0},                      // Vitess
		{"_c_" + uuid + "-latch-0000000007", "", 0},
		{"n_0000000007", "", 0},
		{"locks", "", 0},
		{"leases", "", 0},
		{"_c_" + uuid + "-lease-0000000007", "", 0},
		{hex, "", 0}, // kazoo's Semaphore

		// These numbers are the ends of the range.
		{"lock-0000000000", KindMutex, 0},
		{"lock-2147483647", KindMutex, math.MaxInt32},
		{"lock--2147483648", KindMutex, math.MinInt32},
		{"lock--000000005", KindMutex, -5},
		{"lock--999999999", KindMutex, -999999999},
		{"lock--1000000000", KindMutex, -1000000000},
		{hex + "__lock__-000000005", KindKazoo, -5},
		{"_c_" + uuid + "-__WRIT__-000000005", KindWrite, -5},
		{"lock--0000000001", KindMutex, -1}, // no server creates this name
		{"lock--000000000", KindMutex, 0},
		{"__lock__-2147483648", KindKazoo, math.MinInt32},

		{"", "", 0},
		{"lock-", "", 0},
		{"lock-000000007", "", 0},
		{"lock-00000000007", "", 0},
		{"lock---0000000001", "", 0},
		{"lock---000000001", "", 0},
		{"lock--00000001", "", 0},
		{"lock--00000000001", "", 0},
		{"lock-2147483648", "", 0},
		{"lock--2147483649", "", 0},
		{"lock-+000000001", "", 0},
		{"lock-0000000007x", "", 0},
		{"lock0000000007", "", 0},
		{"LOCK-0000000007", "", 0},
		{"lock-٠٠٠٠٠٠٠٠٠٧", "", 0},
	} {
		kind, sequence, ok := ParseName(tt.name)
		if !ok {
			kind, sequence = "", 0 // kind and number have no meaning for a name that is no contender
		}
		need.Equal(t, "the kind of "+tt.name, kind, tt.kind)
		need.Equal(t, "the number of "+tt.name, sequence, tt.sequence)
	}
}

func TestAnIDIsAUUIDOfAFormOfItsOwn(t *testing.T) {
	form := regexp.MustCompile(`^_c_[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}-$`) // RFC 9562
	for range 100 {
		id := NewID()
		need.That(t, "of another form: "+id, form.MatchString(id))
	}
}

func FuzzParseName(f *testing.F) {
	for _, seed := range []string{
		"", "lock--000000005", "__lock__-000000000", "leases", "lock-0000000007", "lock--2147483648", "a__READ__0000000001",
		"__WRIT__7000000000", "\xff__WRIT__2147483647", "x-1-0000000001",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		kind, sequence, ok := ParseName(name)
		if !ok {
			return
		}
		i := 0
		for i < len(markers) && markers[i].kind != kind {
			i++
		}
		if i == len(markers) {
			t.Fatalf("%q: unknown kind %q", name, kind)
		}
		// A number is written as servers do, or as a sign and ten digits. No server writes "-0" in either form.
		forms := []string{fmt.Sprintf("%s%010d", markers[i].text, sequence)}
		if sequence <= 0 {
			forms = append(forms, fmt.Sprintf("%s-%010d", markers[i].text, -int64(sequence)))
		}
		if sequence == 0 {
			forms = append(forms, markers[i].text+"-000000000")
		}
		if !slices.ContainsFunc(forms, func(form string) bool { return strings.HasSuffix(name, form) }) {
			t.Fatalf("%q was read as one of …%q", name, forms)
		}
		for _, form := range forms {
			if k, q, ok := ParseName(form); k != kind || q != sequence || !ok {
				t.Fatalf("round trip of %q: got %q %d %t", form, k, q, ok)
			}
		}
	})
}
