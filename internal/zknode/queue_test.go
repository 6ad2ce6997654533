package zknode

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

func TestStand(t *testing.T) {
	const (
		own        = "_c_own-lock-0000000005"
		pairFirst  = "_c_01234567-89ab-4def-8123-456789abcdef-lock-0000000003"
		pairSecond = "_c_01234567-89ab-4def-8123-456789abcdef-__lock__0000000004"
	)
	type row struct {
		children string
		own      string
		want     standing
		err      error
	}
	need.Each(t, map[string]row{
		"alone":      {own, own, standing{}, nil},
		"head":       {"lock-0000000006 " + own + " lock-0000000009", own, standing{behind: 2}, nil},
		"behind one": {own + " a-lock-0000000003", own, standing{ahead: 1, nearest: near("a-lock-0000000003")}, nil},
		"the two nearest are watched": {
			"b-lock-0000000004 a-lock-0000000001 " + own + " c-lock-0000000002", own,
			standing{ahead: 3, nearest: near("b-lock-0000000004", "c-lock-0000000002")}, nil,
		},
		"all kinds queue together": {
			"m-lock-0000000000 k__lock__0000000001 w__WRIT__0000000003 r__READ__0000000002 " + own + " q__rlock__0000000004", own,
			standing{ahead: 5, nearest: near("q__rlock__0000000004", "w__WRIT__0000000003")}, nil,
		},
		"names do not order": {
			"zzz-lock-0000000004 " + own + " ___-lock-0000000006", own,
			standing{ahead: 1, nearest: near("zzz-lock-0000000004"), behind: 1}, nil,
		},
		"a reader waits for contenders that do not read": {
			"a__WRIT__0000000001 b-lock-0000000002 c__READ__0000000003 d__rlock__0000000004 r__READ__0000000005", "r__READ__0000000005",
			standing{reads: true, ahead: 2, nearest: near("b-lock-0000000002", "a__WRIT__0000000001")}, nil,
		},
		"a reader is in behind readers": {
			"c__READ__0000000003 r__READ__0000000005 d__rlock__0000000004", "r__READ__0000000005",
			standing{reads: true}, nil,
		},
		"readers do not wait behind a reader": {
			"r__READ__0000000005 c__READ__0000000006 d__rlock__0000000007 w__WRIT__0000000008 m-lock-0000000009",
			"r__READ__0000000005", standing{reads: true, behind: 2}, nil,
		},
		"a reader refuses its number, too": {
			"r__READ__0000000005 c__READ__0000000005", "r__READ__0000000005",
			standing{}, ErrSequenceExhausted,
		},
		"readers wait behind a writer": {
			"w__WRIT__0000000005 c__READ__0000000006 m-lock-0000000007", "w__WRIT__0000000005",
			standing{behind: 2, reader: "c__READ__0000000006"}, nil,
		},
		"a writer waits for readers": {
			"a__READ__0000000001 b__READ__0000000002 w__WRIT__0000000005", "w__WRIT__0000000005",
			standing{ahead: 2, nearest: near("b__READ__0000000002", "a__READ__0000000001")}, nil,
		},
		"a pair ahead is one":              {pairFirst + " " + pairSecond + " " + own, own, standing{ahead: 1, nearest: near(pairSecond)}, nil},
		"a pair listed in the other order": {pairSecond + " " + pairFirst + " " + own, own, standing{ahead: 1, nearest: near(pairSecond)}, nil},
		"foreign children are counted":     {"leases 0000000001 x-1-0000000002 " + own, own, standing{foreign: 3}, nil},
		"a tie of others does not matter":  {"a__READ__0000000007 b__WRIT__0000000007 " + own, own, standing{behind: 2}, nil},
		"their order does not matter":      {"b__WRIT__0000000007 a__READ__0000000007 " + own, own, standing{behind: 2}, nil},

		"own missing":                           {"a-lock-0000000003", own, standing{}, errGone},
		"nobody":                                {"", own, standing{}, errGone},
		"own twice":                             {own + " b-lock-0000000005", own, standing{}, ErrSequenceExhausted},
		"own missing and its number used again": {"b-lock-0000000005", own, standing{}, errGone},
		"a negative number":                     {own + " b-lock--0000000001", own, standing{}, ErrSequenceExhausted},
		"own negative":                          {"lock--2147483648", "lock--2147483648", standing{}, ErrSequenceExhausted},
		"the last number":                       {"lock-2147483647", "lock-2147483647", standing{}, ErrSequenceExhausted},
		"next to the end": {
			lockName(zkqueue.LastSequence + 1), lockName(zkqueue.LastSequence + 1),
			standing{}, ErrSequenceExhausted,
		},
		"just short of that":   {lockName(zkqueue.LastSequence), lockName(zkqueue.LastSequence), standing{}, nil},
		"own without a number": {"leases", "leases", standing{}, ErrSequenceExhausted},
	}, func(t *testing.T, tt row) {
		got, err := stand(strings.Fields(tt.children), tt.own)
		need.WantErr(t, "stand", err, tt.err)
		need.Equal(t, "the standing", got, tt.want)
	})
}

func lockName(sequence int32) string { return fmt.Sprintf("_c_x-lock-%010d", sequence) }

func near(names ...string) (nearest [2]string) {
	copy(nearest[:], names)
	return nearest
}

func TestTheLastDepartureMakesHeadIfEverybodyAheadWasWatched(t *testing.T) {
	const (
		a, b, c, d = "a-lock-0000000001", "b-lock-0000000002", "c-lock-0000000003", "d-lock-0000000004"
		writer     = "w__WRIT__0000000004" // if it becomes a reader, the reader has the same number
		pair       = "_c_x-lock-0000000003 _c_x-__lock__0000000004"
		second     = "_c_x-__lock__0000000004"
		before     = "_c_x-lock-0000000001 _c_x-__lock__0000000002"
	)
	for _, tt := range []struct {
		ahead, gone string
		want        outlook
	}{
		{"", "", first},
		{d, "", waiting},
		{d, d, first},
		{"a__lock__0000000003", "a__lock__0000000003", first},
		{writer, writer, lookAgain},
		{c + " " + d, c, waiting},
		{c + " " + d, d, waiting},
		{c + " " + d, c + " " + d, first},
		{c + " " + writer, c, waiting},
		{c + " " + writer, writer, lookAgain},
		{b + " " + c + " " + d, "", waiting},
		{b + " " + c + " " + d, c, lookAgain},
		{b + " " + c + " " + d, d, lookAgain},
		{b + " " + c + " " + d, c + " " + d, lookAgain},
		{pair, second, first},
		{before + " " + pair, second + " _c_x-__lock__0000000002", first},
		{b + " " + pair, second + " " + b, first},
		{a + " " + b + " " + pair, second + " " + b, lookAgain},
	} {
		wantOutlook(t, "lock-0000000005", tt.ahead, tt.gone, tt.want)
	}
}

// A writer that becomes a reader keeps its number, and lets in only readers right behind it. Therefore a contender behind a writer of this
// package has to look for such a reader only if a reader is right behind that writer.
func TestADepartureTellsUnlessAReaderWithItsNumberMayBeLeft(t *testing.T) {
	const (
		id                 = "_c_01234567-89ab-4def-8123-456789abcdef-"
		oursID             = "_c_01234567-89ab-8def-8123-456789abcdef-"
		a                  = "a-lock-0000000001"
		ours, curators     = oursID + "__WRIT__0000000003", id + "__WRIT__0000000003"
		pair, second       = ours + " " + oursID + "__lock__0000000004", oursID + "__lock__0000000004"
		reader             = "c__READ__0000000006"
		writer, other      = "e__WRIT__0000000006", "f-lock-0000000006"
		asReader, asWriter = "__READ__0000000009", "__WRIT__0000000009"
		asMutex            = "lock-0000000009"
	)
	for _, tt := range []struct {
		own, ahead, gone string
		want             outlook
	}{
		{asReader, curators, curators, first},
		{asReader, pair, second, first},
		{asReader, ours + " " + reader + " " + other, ours, waiting},
		{asReader, ours + " " + other, ours + " " + other, first},

		{asWriter, curators + " " + other, curators, lookAgain},

		{asWriter, ours, ours, first},
		{asWriter, pair, second, first},
		{asWriter, a + " " + pair, second, waiting},

		{asWriter, ours + " " + writer, ours, waiting},
		{asMutex, ours + " " + other, ours + " " + other, first},
		{asWriter, ours + " " + reader, ours, lookAgain},
		{asMutex, ours + " " + reader, ours + " " + reader, lookAgain},
		{asWriter, pair + " " + reader, second, lookAgain},
		{asWriter, ours + " " + reader, reader, waiting},
		{asWriter, "e__lock__0000000003 " + reader, "e__lock__0000000003", waiting},
	} {
		wantOutlook(t, tt.own, tt.ahead, tt.gone, tt.want)
	}
}

// wantOutlook checks what a node knows about its place when some of the nodes ahead are gone.
func wantOutlook(t *testing.T, own, ahead, gone string, want outlook) {
	t.Helper()
	s := need.Get(stand(append(strings.Fields(ahead), own), own))(t)
	left := func(name string) bool { return slices.Contains(strings.Fields(gone), name) }
	need.Equal(t, fmt.Sprintf("%q behind %q, gone %q", own, ahead, gone), s.after(left), want)
}

func TestAPairStandsWhileBothOfItAreThere(t *testing.T) {
	const first, second, others = "_c_x-lock-0000000005", "_c_x-__lock__0000000006", "a-lock-0000000003 b__lock__0000000007 "
	s := need.Get(stand(strings.Fields(others+second+" "+first), first, second))(t)
	need.Equal(t, "the pair stands", s, standing{ahead: 1, nearest: near("a-lock-0000000003"), behind: 1})
	for _, half := range []string{first, second} {
		need.WantErr(t, half+" alone", need.ErrOf(stand(strings.Fields(others+half), first, second)), errGone)
	}
}
