package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestWrongUsageExitsWith2(t *testing.T) {
	for _, args := range []string{
		"-no-such-flag", "-procs 0", "-goroutines -1", "-paths 0", "-zipf 1", "-zipf NaN", "-cs -1s", "-think -1s", "-rtt -1s",
		"-duration 0s", "-seed -1",
		"-lock none", "-o xml", "-zk ,", "-zk host/", "-zk host//x", "-zk /x", "surplus",
		"-ensemble 0", "-ensemble 2", "-ensemble 3 -zk host", "-chaos -zk host", "-chaos -baseline", "-chaos -lock zk",
		"-handoff -1s", "-handoff 0", "-linger x", "-handoff 1s -lock zk", "-strict -lock zk",
		"-store none", "-store etcd -lock zk", "-store postgres-advisory -lock semaphore",
		"-lock etcd", "-store etcd -zk host", "-store etcd -chaos -lock etcd",
		"-store etcd -handoff 1s -lock etcd", "-reads 0.5", "-permits 2", "-weight 1 -lock rw",
		"-lock rw -reads -0.1", "-lock rw -reads 1.1", "-lock rw -reads NaN",
		"-lock semaphore -permits 0", "-lock semaphore -weight 0", "-lock semaphore -permits 2 -weight 3", "-lock semaphore -baseline",
		"-baseline=none", "-baseline=etcd", "-lock rw -baseline=zk", "-bench x -procs 2", "-bench x -zk host", "-bench x -html y",
		"-bench x -store postgres-advisory",
	} {
		code, stdout, stderr := runWith(strings.Fields(args)...)
		need.That(t, fmt.Sprintf("%s: got exit %d, stdout %q, stderr %q, want %d and the usage on stderr", args, code, stdout, stderr, exitUsage),
			code == exitUsage && stdout == "" && strings.Contains(stderr, "Usage of stress"))
	}
}

func TestLockThatTheStoreDoesNotHave(t *testing.T) {
	for _, order := range []string{"-store etcd -lock zk", "-lock zk -store etcd"} {
		if _, _, stderr := runWith(strings.Fields(order)...); !strings.Contains(stderr,
			`-lock "zk": no such lock on etcd, which has etcd, etcd-local, mutex, rw`) {
			t.Errorf("%s: got %q", order, stderr)
		}
	}
}

func TestBaselineIsTheFirstOneUnlessNamed(t *testing.T) {
	for args, want := range map[string]string{
		"": "", "-baseline": "zk", "-baseline=zk": "zk", "-baseline=zk-local": "zk-local", "-baseline=false": "",
		"-baseline -lock rw": "mutex", "-baseline -store etcd": "etcd",
		"-baseline -store redis": "rueidislock", "-baseline=redsync -store redis": "redsync",
		"-baseline -store postgres": "advisory", "-baseline=version -store postgres-advisory": "version",
		"-baseline -store mysql": "get_lock", "-baseline=table -store mysql": "table",
	} {
		need.Equal(t, args, need.Get(parseFlags(strings.Fields(args), os.Stderr))(t).Baseline, want)
	}
}

func TestShapeOfChaos(t *testing.T) {
	c := need.Get(parseFlags(strings.Fields("-chaos -paths 7 -strict -linger 5ms"), os.Stderr))(t)
	need.That(t, fmt.Sprintf("%+v", c), c.Paths == 7 && c.Section != 0 && *c.HandOff == 0 && *c.Linger == 5*time.Millisecond)
	for args, want := range map[string]int{"-weight 2": 3, "-weight 4": 4, "-permits 7": 7} {
		c, err := parseFlags(strings.Fields("-chaos -lock semaphore "+args), os.Stderr)
		need.WantErr(t, args, err, nil)
		need.Equal(t, args+": permits", c.Permits, want)
	}
	c = need.Get(parseFlags([]string{"-chaos", "-cs", "0s"}, os.Stderr))(t)
	need.That(t, fmt.Sprintf("%+v", c), c.Section == 0 && c.HandOff == nil)
}

func TestShapeOfABench(t *testing.T) {
	c, err := parseFlags([]string{"-bench", "x"}, os.Stderr)
	need.WantErr(t, "of several", err, nil)
	need.Equal(t, "the duration of each", c.Duration, 1400*time.Millisecond)
	c, err = parseFlags([]string{"-bench", "x", "-duration", "1s"}, os.Stderr)
	need.WantErr(t, "of several", err, nil)
	need.Equal(t, "the duration of each", c.Duration, time.Second)
}

func TestDrawingIsBesideTheReport(t *testing.T) {
	for html, want := range map[string]string{"": "", "x/y.html": "x/y-history.html", "x.d/y": "x.d/y-history.html"} {
		need.Equal(t, fmt.Sprintf("-html %q", html), (&command{HTML: html}).drawing(), want)
	}
}
