package etcdlock

import "context"

// remains are a key that nobody wants any more, and the session it was created under.
type remains struct {
	key     string
	session *session
	refused bool // a delete was not permitted, which was reported
}

// remove tries once to delete a key, and reports whether it is certain to be gone as far as
// the requests that were answered can make it; see [store.audit] for the others.
func (s *store) remove(item *remains) bool {
	if item.session.Over() {
		return true // it went with the lease
	}
	_, err := s.delete(item.key)
	if classify(err) == permanent && !item.refused {
		item.refused = true
		s.options.logger.Warn("etcdlock: cannot delete a key; it stays in the queue until its lease ends, also in the way of this process",
			"key", item.key, "err", err)
	}
	return err == nil
}

// delete returns how many keys it has deleted, one or none.
func (s *store) delete(key string) (deleted int64, err error) {
	err = s.call(s.ctx, func(ctx context.Context) error {
		resp, err := s.client.Delete(ctx, key)
		if err == nil {
			deleted = resp.Deleted
		}
		return err
	})
	return deleted, err
}
