package agent

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Rules say which processes may use which paths.
type Rules struct{ rules []rule }

type rule struct {
	who      string // "uid", "gid" or "any"
	id       int
	patterns []string
}

// ReadRules reads an allow file. Each line has a user or a group, which may be a supplementary group of the process, and patterns of paths:
//
//	uid:1000 /jobs/* /reports/**
//	gid:33   /web/**
//	any      /public/*
//
// A pattern has the syntax of [path.Match]. A pattern that ends in /** matches everything below. A request is allowed if one line allows
// it.
// Empty lines and lines that begin with # are ignored.
func ReadRules(r io.Reader) (*Rules, error) {
	all := new(Rules)
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		one, err := parseRule(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		all.rules = append(all.rules, one)
	}
	return all, lines.Err()
}

func parseRule(fields []string) (r rule, err error) {
	var id string
	r.who, id, _ = strings.Cut(fields[0], ":")
	r.patterns = fields[1:]
	if r.who != "any" {
		r.id, err = strconv.Atoi(id)
	}
	switch {
	case r.who != "uid" && r.who != "gid" && fields[0] != "any" || err != nil || r.id < 0:
		return r, fmt.Errorf("%q: want uid:NUMBER, gid:NUMBER or any", fields[0])
	case len(r.patterns) == 0:
		return r, fmt.Errorf("%s: no path; want patterns such as /jobs/*", fields[0])
	}
	for _, pattern := range r.patterns {
		if _, err := path.Match(strings.TrimSuffix(pattern, "/**"), ""); err != nil {
			return r, fmt.Errorf("pattern %q: %w", pattern, err)
		}
	}
	return r, nil
}

func (r *rule) allows(p *peer, at string) bool {
	if !slices.ContainsFunc(r.patterns, func(pattern string) bool { return matches(pattern, at) }) {
		return false
	}
	switch r.who {
	case "uid":
		return r.id == p.uid
	case "gid":
		return r.id == p.gid || slices.ContainsFunc(p.groups(), func(gid uint32) bool { return int(gid) == r.id })
	}
	return true
}

// matches reports whether the pattern matches the path as the store takes it: to a store, /a/../b is not /b.
func matches(pattern, at string) bool {
	above, deep := strings.CutSuffix(pattern, "/**")
	if !deep {
		ok, _ := path.Match(pattern, at)
		return ok
	}
	for end := strings.LastIndexByte(at, '/'); end >= 0; end = strings.LastIndexByte(at[:end], '/') {
		if ok, _ := path.Match(cmp.Or(above, "/"), cmp.Or(at[:end], "/")); ok {
			return true
		}
	}
	return false
}

// permit returns an error if the store refuses one of the paths, or the client may not use it. Root and the user of the agent may use all.
func (a *Agent) permit(p *peer, paths ...string) error {
	for _, at := range paths {
		if err := a.config.Check(at); err != nil {
			return &failure{http.StatusBadRequest, "invalid", err}
		}
	}
	if a.config.Allow == nil || p.operates() {
		return nil
	}
	for _, at := range paths {
		if !slices.ContainsFunc(a.config.Allow.rules, func(r rule) bool { return r.allows(p, at) }) {
			return &failure{http.StatusForbidden, "forbidden", fmt.Errorf("the allow file does not let %v use %s", p, at)}
		}
	}
	return nil
}

// operates reports whether the client is run by root or by the user of the agent.
func (p *peer) operates() bool { return operates(p.uid, os.Getuid()) }

func operates(uid, own int) bool { return uid != overflow() && (uid == 0 || uid >= 0 && uid == own) }

// overflow returns the user that the kernel names instead of each user that the user namespace of the agent does not have.
var overflow = sync.OnceValue(func() int {
	text, _ := os.ReadFile("/proc/sys/kernel/overflowuid")
	if uid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		return uid
	}
	return 65534
})
