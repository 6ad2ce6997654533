package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// ahead watches the contenders right ahead of a node that queues. It watches two of them, so
// that whoever becomes second in line can learn before its turn comes that nobody else is
// ahead; the departure of the last one then makes it the head without another look.
type ahead struct {
	attempt  *attempt
	node     *Node
	departed mutexbool.Bool           // somebody has gone
	watchers map[string]*link.Watcher // by name
}

// tell passes on what w has heard: that somebody has gone, or that the watch is used up or lost.
// The latter ends the wait, whoever has gone in the same moment.
func (h *ahead) tell(w *link.Watcher) {
	if w.Gone.Load() {
		h.departed.Set()
	} else {
		h.node.wake.Set()
	}
}

func (h *ahead) leave() {
	h.attempt.wait.Forget()
	h.follow([2]string{})
}

// follow has those that are given watched, and nobody else. Whoever was known to have gone is
// still known for that, even if a list that was made before shows it.
func (h *ahead) follow(names [2]string) {
	for name, w := range h.watchers {
		if !slices.Contains(names[:], name) {
			h.attempt.client.link.Events.Ignore(h.path(name), w)
			delete(h.watchers, name)
		}
	}
	for _, name := range names {
		if name != "" && h.watchers[name] == nil {
			if h.watchers == nil {
				h.watchers = make(map[string]*link.Watcher)
			}
			w := new(link.Watcher)
			w.Notify = func() { h.tell(w) }
			h.watchers[name] = w
		}
	}
}

func (h *ahead) path(name string) string { return h.attempt.lock.path + "/" + name }

func (h *ahead) gone(name string) bool { return h.watchers[name].Gone.Load() }

// wait returns when those ahead have gone and the node is the head, or when there is another
// reason to look again.
func (h *ahead) wait(s standing) (head bool, err error) {
	a, n := h.attempt, h.node
	h.follow(s.nearest)
	h.tellStanding(s)
	h.tellOfRemains()
	queue := &link.Watcher{Notify: n.wake.Set}
	defer a.client.link.Events.Ignore(a.lock.path, queue)
	if err := h.watch(queue); err != nil {
		return false, err
	}
	// Watches can be lost: setting them again after a reconnect may fail unseen.
	ctx, cancel := context.WithTimeout(a.ctx, n.session.Recheck())
	defer cancel()
	for {
		h.departed.Clear() // before the look: what comes later ends the wait
		switch s.after(h.gone) {
		case first:
			return true, nil
		case unclear:
			return false, nil
		}
		select {
		case <-h.departed.C():
			continue
		case <-n.wake.C():
		case <-ctx.Done():
		}
		break
	}
	if a.ctx.Err() != nil {
		return false, a.explain(context.Cause(a.ctx))
	}
	return false, nil
}

// tellStanding says how to learn where the node stands. What is known of the one right ahead came
// with its watch.
func (h *ahead) tellStanding(s standing) {
	watchers := [2]*link.Watcher{h.watchers[s.nearest[0]], h.watchers[s.nearest[1]]}
	h.attempt.wait.Stands(func() second.Standing {
		now := second.Standing{Ahead: s.ahead}
		for i, name := range s.nearest {
			switch {
			case name == "":
			case watchers[i].Gone.Load():
				now.Ahead--
			case now.Nearest.ID == "":
				now.Nearest = h.attempt.lock.seen(name).forGate()
			}
		}
		return now
	})
}

// watch sees to it that the end of those ahead and of the node itself are heard of, in one
// round trip. On the former the grant rests, and so it does on the latter.
func (h *ahead) watch(queue *link.Watcher) error {
	c, n := h.attempt.client, h.node
	var requests []link.Request
	var names []string
	for name, w := range h.watchers {
		if q := c.link.Reading(h.path(name), w); q.Watch {
			requests, names = append(requests, q), append(names, name)
		}
	}
	others := len(requests)
	own := n.znodes.unwatched()
	for _, z := range own {
		requests = append(requests, c.link.Reading(z.path, &z.watch))
	}
	if len(requests) == 0 {
		return nil
	}
	answers := c.link.Read(requests...)
	var failed error
	for i, name := range names {
		w := h.watchers[name]
		err := answers[i].Err
		if errors.Is(err, zk.ErrNoAuth) {
			err = n.watchUnreadable(queue, name)
		}
		switch classify(err) {
		case done:
		case missing:
			w.Gone.Store(true) // since the list
		default:
			failed = fmt.Errorf("watch %s: %w", h.path(name), err)
		}
	}
	for i, z := range own {
		if err := z.unseen(answers[others+i].Err); err != nil {
			return err
		}
		z.watched = true
	}
	return failed
}

// tellOfRemains says what the attempt waits for if that is a node of ours that should be gone.
func (h *ahead) tellOfRemains() {
	for name := range h.watchers {
		if stuck := h.attempt.client.stuck(h.path(name)); stuck != nil {
			h.attempt.trouble.Store(&stuck)
		}
	}
}

// watchUnreadable lets queue hear of the end of a foreign node that we may not read. A server
// sends no event about it (CVE-2024-23944), nor does it say that it exists, from 3.8.4
// and 3.9.2 on (ZOOKEEPER-2590); but the queue can be watched, since it could be listed.
func (n *Node) watchUnreadable(queue *link.Watcher, name string) error {
	children, err := n.lock.client.link.WatchQueue(n.lock.path, queue)
	if err == nil && !slices.Contains(children, name) {
		err = zk.ErrNoNode
	}
	return err
}
