package zktest

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Modelled is the release whose answers are the model's, and what the conformance tests expect but for changes. It is
// Debian's, which has the fix for CVE-2024-23944 that others have from 3.8.4 and 3.9.2 on.
const Modelled = "3.8.0"

// A change is an answer that later releases give otherwise.
type change struct {
	in      string   // the script or wire test
	since   []string // the first release that has it, of each branch that has it, in order
	was, is string
}

// changes are all that the tests have met up to 3.9.3. The model has none of them.
var changes = []change{
	// Exists asks for permission to read what is there (ZOOKEEPER-2590). What must work on both may not use it to get
	// round a node's ACL.
	{
		"acl", []string{"3.8.4", "3.9.2"},
		"b exists /a/auth\n  true c+8 m+8 p+8 v0 cv0 av0 owner=none len=1 kids=0\n",
		"b exists /a/auth\n  zk: not authenticated\n",
	},
	// An event has the zxid of its cause (ZOOKEEPER-4655). Neither the client library nor zklock reads it: with the zxid
	// of an event seen, one that is still to come from the same multi would not be asked for again.
	{
		"closing ends session and connection", []string{"3.9.0"},
		"a: xid -1 at never,",
		"a: xid -1 at +2,",
	},
	// In a multi, what creates answers as it does outside (ZOOKEEPER-4026). The client library sends only create.
	{
		"in a multi, flags say what is created", []string{"3.8.2", "3.9.0"},
		"a: xid 1 at +5, code 0, 24 bytes\ncreate2 with flags 0: create\n",
		"a: xid 1 at +5, code 0, 92 bytes\ncreate2 with flags 0: create2\n",
	},
	{
		"in a multi, flags say what is created", []string{"3.8.2", "3.9.0"},
		"a: xid 2 at +9, code 0, 24 bytes\ncreateContainer with flags 0: create\n",
		"a: xid 2 at +9, code 0, 92 bytes\ncreateContainer with flags 0: create2\n",
	},
	// The flags are looked at while the request is read (ZOOKEEPER-4026): it is the multi that fails, as malformed, and
	// not the operation in it. Nobody sends such flags.
	{
		"flags without a meaning in a multi", []string{"3.8.2", "3.9.0"},
		"a: xid 0 at +1, code 0, 22 bytes\na: xid 1 at +2, code 0, 22 bytes\na: xid 2 at +3, code 0, 22 bytes\n",
		"a: xid 0 at +1, code -5, 0 bytes\na: xid 1 at +2, code -5, 0 bytes\na: xid 2 at +3, code -5, 0 bytes\n",
	},
	// A request is read before it gets a zxid (ZOOKEEPER-4575). Nobody sends half a request, or counts zxids.
	{
		"half a create", []string{"3.9.0"},
		"a: xid 1 at +1,",
		"a: xid 1 at +0,",
	},
}

// Expect returns what a script or wire test, whose expectation is want, expects of a server of the release.
func Expect(t *testing.T, release, test, want string) string {
	t.Helper()
	for _, c := range changes {
		if c.in != test {
			continue
		}
		if strings.Count(want, c.was) != 1 {
			t.Fatalf("%s does not expect, or more than once:\n%s", test, c.was)
		}
		if c.appliesTo(release) {
			want = strings.Replace(want, c.was, c.is, 1)
		}
	}
	return want
}

func (c change) appliesTo(release string) bool {
	have := numbers(release)
	for i, since := range c.since {
		first := numbers(since)
		sameBranch := slices.Equal(have[:2], first[:2])
		if slices.Compare(have, first) >= 0 && (sameBranch || i == len(c.since)-1) {
			return true
		}
	}
	return false
}

func numbers(release string) []int {
	var list []int
	for part := range strings.SplitSeq(release, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			panic(err)
		}
		list = append(list, n)
	}
	return list
}

func TestChangesReachBranchesOneByOne(t *testing.T) {
	c := change{since: []string{"3.8.4", "3.9.2"}}
	for release, want := range map[string]bool{
		"3.7.9": false, "3.8.0": false, "3.8.4": true, "3.8.10": true, "3.9.0": false, "3.9.2": true, "3.10.0": true, "4.0.0": true,
	} {
		if got := c.appliesTo(release); got != want {
			t.Errorf("a change of %v in %s: got %t, want %t", c.since, release, got, want)
		}
	}
}
