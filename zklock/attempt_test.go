package zklock

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// The older one may end when the next one has been abandoned, too.
func TestTheNewestAbandonedAttemptIsWaitedForThoughAnOlderOneIsForgotten(t *testing.T) {
	lock := &Lock{path: "/x"}
	older, newer := &attempt{lock: lock, done: make(chan struct{})}, &attempt{lock: lock, done: make(chan struct{})}
	s := abandoned{last: make(map[string]*attempt)}
	s.add(older)
	s.add(newer)
	s.remove(older)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.await(ctx, "/x"); err == nil {
		t.Error("nobody is waited for")
	}
	s.remove(newer)
	if err := s.await(t.Context(), "/x"); err != nil {
		t.Error(err)
	}
	s.add(newer) // it has ended before its caller left
	if len(s.last) > 0 {
		t.Errorf("remembered: %v", s.last)
	}
}

// It would never be held, and go only when the server says so.
func TestNodeOfASessionThatHasEndedIsGoneBeforeItIsLookedFor(t *testing.T) {
	c := &Client{link: link.New(link.Config{})}
	s := link.NewUnleased(c.link, 1, time.Second)
	s.End(zk.ErrSessionExpired)
	n := newNode(&Lock{client: c, path: "/x"}, s, link.Answer{Created: []string{"/x/lock-0000000001"}})
	if err := n.bind(s, 1); !errors.Is(err, errGone) {
		t.Errorf("got %v, want %v", err, errGone)
	}
}

func TestTheConfigurationOfTLSIsCopied(t *testing.T) {
	var o options
	cfg := &tls.Config{ServerName: "before"}
	WithTLS(cfg)(&o)
	if cfg.ServerName = "after"; o.tls.ServerName != "before" {
		t.Error("changed after Dial")
	}
	if WithTLS(nil)(&o); o.tls == nil {
		t.Error("no configuration is no TLS")
	}
}

// What is not known to be harmless may have been applied.
func TestWhatAnErrorSaysOfItsRequest(t *testing.T) {
	coded := func(code int) error { return fmt.Errorf("unknown error: %d", code) } // as the library says it
	for want, errs := range map[outcome][]error{
		done:    {nil},
		missing: {zk.ErrNoNode},
		refused: {zk.ErrNoServer, zk.ErrSessionExpired, coded(wire.CodeThrottled)},
		permanent: {ErrClosed, errNotOurs, zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrNoChildrenForEphemerals,
			zk.ErrBadArguments, zk.ErrInvalidPath, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion,
			coded(wire.CodeUnimplemented), coded(wire.CodeLocalSession), coded(wire.CodeQuotaExceeded)},
		unknown: {zk.ErrConnectionClosed, zk.ErrClosing, coded(-1), errors.New("something new")},
	} {
		for _, err := range errs {
			if got := classify(err); got != want {
				t.Errorf("%v: got %d, want %d", err, got, want)
			}
			if err == nil {
				continue
			}
			if got := classify(fmt.Errorf("of a request: %w", err)); got != want {
				t.Errorf("%v, wrapped: got %d, want %d", err, got, want)
			}
		}
	}
}

// People read nodes with other tools, and go by this document.
func TestDocumentedContentIsThatOfANode(t *testing.T) {
	text, err := os.ReadFile("../docs/nodes.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[description]()) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		want = append(want, name)
		row := regexp.MustCompile("(?m)^\\| `" + name + "` .*$").FindString(string(text))
		if optional := options == "omitempty"; strings.Contains(row, "left out if") != optional {
			t.Errorf("docs/nodes.md says %q; left out at times: %v", row, optional)
		}
	}
	_, table, _ := strings.Cut(string(text), "\n| field ")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)`").FindAllStringSubmatch(table, -1) {
		got = append(got, row[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/nodes.md documents %q, and a node has %q", got, want)
	}

	example := regexp.MustCompile(`(?m)^\{.*\}$`).Find(text)
	var d description
	strict := json.NewDecoder(bytes.NewReader(example))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&d); err != nil {
		t.Fatalf("the example in docs/nodes.md, %s: %v", example, err)
	}
	// Encoding sets the time.
	now := d.encode(time.Duration(d.Linger) * time.Millisecond)
	theTime := regexp.MustCompile(`"time":"[^"]*Z"`)
	if !bytes.Equal(theTime.ReplaceAll(now, nil), theTime.ReplaceAll(example, nil)) {
		t.Errorf("docs/nodes.md shows %s, and a node has %s", example, now)
	}

	names := regexp.MustCompile(`_c_\S*-lock-\d{10}`).FindAllString(string(text), -1)
	if queue, others := ParseQueue(names); len(queue) != 3 || len(others) != 0 { // one of them twice
		t.Errorf("docs/nodes.md names %q", names)
	} else if queue[0].Kind != KindTierlock {
		t.Errorf("docs/nodes.md shows nodes of %s", queue[0].Kind)
	}
}
