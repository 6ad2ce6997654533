package dropin_test

import "runtime"

var queueBehaviours = []behaviour{
	{
		name: "nodes of the handles of one connection", modelOnly: true,
		run: func(s *scene, _ handle) {
			first := s.handle("first", s.conn)
			first.lock()
			runtime.GC() // handles share one registry as long as any of them is in use
			second := s.handle("second", s.conn)
			wait := second.beginLock()
			s.note("nodes %d", len(s.children()))
			first.unlock()
			wait.end()
			second.unlock()
		},
		want:    "first Lock ok, nodes 2, first Unlock ok, second Lock ok, second Unlock ok, left 0",
		ours:    "first Lock ok, nodes 1, first Unlock ok, second Lock ok, second Unlock ok, left 0",
		because: "All handles of one connection and path",
	},
	{
		name: "another process waits before a handle of the owner's", modelOnly: true,
		run: func(s *scene, _ handle) {
			owner, stranger, sibling := s.handle("owner", s.conn), s.original("stranger", s.other), s.handle("sibling", s.conn)
			owner.lock()
			waits := []call{stranger.beginLock(), sibling.beginLock()}
			owner.unlock()
			s.still()
			if first := len(waits[0].outcome) == 1; first {
				waits[0].end()
				stranger.unlock()
				waits[1].end()
				sibling.unlock()
			} else {
				waits[1].end()
				sibling.unlock()
				waits[0].end()
				stranger.unlock()
			}
		},
		want: "owner Lock ok, owner Unlock ok, stranger Lock ok, stranger Unlock ok, " +
			"sibling Lock ok, sibling Unlock ok, left 0",
		ours: "owner Lock ok, owner Unlock ok, sibling Lock ok, sibling Unlock ok, " +
			"stranger Lock ok, stranger Unlock ok, left 0",
		because: "While another process waits, the lock may still go to other handles",
	},
	{
		name: "a zk.Lock waits for it, and it for a zk.Lock",
		run: func(s *scene, h handle) {
			old := s.original("zk", s.other)
			h.lock()
			wait := old.beginLock()
			s.queued(2)
			s.note("waits %t", len(wait.outcome) == 0)
			h.unlock()
			wait.end()
			wait = h.beginLock()
			s.queued(2)
			s.note("waits %t", len(wait.outcome) == 0)
			old.unlock()
			wait.end()
			h.unlock()
		},
		want: "Lock ok, waits true, Unlock ok, zk Lock ok, waits true, zk Unlock ok, Lock ok, Unlock ok, left 0",
	},
	{
		name: "a child that is no lock node",
		run: func(s *scene, h handle) {
			s.put(s.path+"/leader", s.acl)
			h.lock()
			h.unlock()
			s.removed("leader")
		},
		want:    "Lock some error, Unlock ErrNotLocked, left 1",
		ours:    "Lock ok, Unlock ok, left 0",
		because: "Children of the path that are not lock nodes are ignored",
	},
}
