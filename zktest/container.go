package zktest

import "time"

// scheduleReaperLocked makes sure that the next look at containers is due while there are any. A timer that runs
// without need would keep a synctest bubble with a deadlock from noticing it.
func (s *Server) scheduleReaperLocked() {
	if s.reaper == nil && len(s.tree.containers) > 0 && !s.closed {
		s.reaper = time.AfterFunc(s.cfg.ContainerCheck, s.reapContainers)
	}
}

// reapContainers deletes, each in a transaction of its own, the containers that have had children and have none.
func (s *Server) reapContainers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.reaper = nil
	for _, path := range s.tree.containers.sorted() {
		if n := s.tree.nodes[path]; s.frozen == nil && n.creates > 0 && n.kids == 0 {
			t := s.beginLocked()
			t.remove(path)
			s.commitLocked(t)
		}
	}
	s.scheduleReaperLocked()
}
