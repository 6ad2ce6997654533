package etcdlock

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// remains are a key that nobody wants any more, and the session it was created under.
type remains struct {
	key     string
	created int64 // revision, 0 for any
	session *session
	refused bool // a delete was not permitted, which was reported
}

// remove tries once to delete a key, and reports whether it is certain to be gone as far as
// the requests that were answered can make it; see [store.audit] for the others.
func (s *store) remove(item *remains) bool {
	if item.session.Over() {
		return true // it went with the lease
	}
	_, err := s.delete(item.key, item.created)
	if classify(err) == permanent && !item.refused {
		item.refused = true
		s.options.logger.Warn("etcdlock: cannot delete a key; it stays in the queue until its lease ends, also in the way of this process",
			"key", item.key, "err", err)
	}
	return err == nil
}

// delete deletes the key that was created at a revision, 0 for any, and returns how many it has
// deleted, one or none.
func (s *store) delete(key string, created int64) (deleted int64, err error) {
	err = s.call(s.ctx, func(ctx context.Context) error {
		txn := s.client.Txn(ctx)
		if created != 0 {
			txn = txn.If(clientv3.Compare(clientv3.CreateRevision(key), "=", created))
		}
		answer, err := txn.Then(clientv3.OpDelete(key)).Commit()
		if err == nil && answer.Succeeded {
			deleted = answer.Responses[0].GetResponseDeleteRange().GetDeleted()
		}
		return err
	})
	return deleted, err
}
