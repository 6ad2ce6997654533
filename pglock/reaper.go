package pglock

import "context"

// remains are a contender that nobody wants any more, and its session.
type remains struct {
	path, id string
	session  *session
	refused  bool // a delete was not permitted, which was reported
}

// remove tries once to delete a contender, and reports whether it is certain to be gone as far as
// the requests that were answered can make it; see [attendant.audit] for the others.
func (s *store) remove(item *remains) bool {
	if item.session.Over() {
		return true // it goes with the session
	}
	_, err := s.delete(item.path, item.id)
	if err != nil {
		item.session.doubtful.Store(true)
	}
	if classify(err) == permanent && !item.refused {
		item.refused = true
		s.options.logger.Warn("pglock: cannot delete a contender; it stays in the queue until its session is over, also in the way of this process",
			"path", item.path, "id", item.id, "err", err)
	}
	return err == nil
}

// delete takes a contender out of its queue, and reports whether it was there.
func (s *store) delete(path, id string) (present bool, err error) {
	err = s.call(s.ctx, func(ctx context.Context) error {
		return s.requests.QueryRow(ctx, "SELECT tierlock.leave($1, $2)", path, id).Scan(&present)
	})
	return present, err
}
