package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestSummaryCountsAnAcquisitionBeforeTheLossAsBreach(t *testing.T) {
	early := outcome{Fault: "follower", Lost: 5 * time.Second, Acquired: 4 * time.Second}
	late := outcome{Fault: "follower", Lost: 2 * time.Second, Acquired: 4 * time.Second}
	leader := outcome{Fault: "leader", Lost: 2 * time.Second, Acquired: 8 * time.Second}
	dud := outcome{Fault: "leader", Error: "the lock did not pass on"}
	type row struct {
		outcomes []outcome
		passed   bool
		want     []string
	}
	need.Each(t, map[string]row{
		"loss first": {[]outcome{late, leader}, true, []string{
			"follower  1 trials, 0 breaches, margin min +2.000 s", "partition: 2 trials, 0 breaches\n"}},
		"acquired first": {[]outcome{late, early, leader}, false, []string{
			"follower  2 trials, 1 breaches, margin min -1.000 s", "partition: 3 trials, 1 breaches\n"}},
		"no outcome": {[]outcome{late, dud}, false, []string{
			"1 trials without an outcome", "partition: 1 trials, 0 breaches\n"}},
		"nothing tried": {nil, false, []string{"partition: 0 trials, 0 breaches\n"}},
	}, func(t *testing.T, test row) {
		var out strings.Builder
		need.Equal(t, "passed", summarize(&out, zooKeeper.faultNames(), test.outcomes), test.passed)
		need.Has(t, "the summary", out.String(), test.want...)
		last := test.want[len(test.want)-1]
		need.That(t, "the last line is another one: "+out.String(), strings.HasSuffix(out.String(), last))
	})
}

func TestFlagsNameTheFaults(t *testing.T) {
	p, labs, err := parseFlags([]string{"-fault", "leader,flap", "-trials", "2"}, io.Discard)
	need.OK(t, err)
	need.That(t, fmt.Sprintf("%+v, %d labs", p, labs), len(p.Faults) == 2 && p.Trials == 2 && labs >= 1)
	p, _, err = parseFlags([]string{"-store", "etcd"}, io.Discard)
	need.OK(t, err)
	need.Equal(t, "faults of etcd", len(p.Faults), 3)
	for _, lone := range []string{"postgres", "postgres-advisory", "redis", "mysql"} {
		p, _, err = parseFlags([]string{"-store", lone, "-fault", "stopped,mute,halted"}, io.Discard)
		need.OK(t, err)
		need.Equal(t, "faults of "+lone, len(p.Faults), 3)
	}
	for _, args := range [][]string{{"-store", "redis", "-fault", "cut"}, {"-fault", "quake"}, {"-store", "etcd", "-fault", "flap"},
		{"-store", "none"}, {"-trials", "0"}, {"-labs", "0"}, {"more"}} {
		_, _, err := parseFlags(args, io.Discard)
		need.That(t, fmt.Sprintf("%q: no error", args), err != nil)
	}
}
