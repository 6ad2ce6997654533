package etcdlock

import (
	"context"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/queue"
)

// A past detects that etcd was set back to an earlier state, because an operator has restored a backup or an old volume. The earlier state
// may have the lease of this process but not its keys, or it may have keys that were deleted later. Keep-alives of the lease succeed
// nevertheless.
type past struct {
	newest atomic.Int64 // the newest revision of etcd that this process knows
	back   atomic.Bool  // etcd may have been set back during this session

	mu     sync.Mutex // guards the fields below
	life   life
	unsure bool // the next renewal has to read the keys of this process
}

// A life identifies a period in which etcd cannot have been set back to an earlier state. A restore, a restart and an election each start a
// new life.
type life struct{ cluster, term uint64 }

func (p *past) begin(h *pb.ResponseHeader) {
	p.newest.Store(h.Revision)
	p.back.Store(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life, p.unsure = life{h.ClusterId, h.RaftTerm}, false
}

func (p *past) known() int64 { return p.newest.Load() }

// hears is called with the revision of a linearizable answer. known is the newest revision that was known when the request was sent. If the
// answer has a lower revision, etcd was set back.
func (s *store) hears(known, revision int64) {
	p := &s.past
	if revision >= known {
		for newest := p.known(); revision > newest && !p.newest.CompareAndSwap(newest, revision); newest = p.known() {
		}
		return
	}
	p.newest.Store(revision)
	s.suspect()
}

// suspect is called when etcd seems to have been set back to an earlier state. It makes the tier renew the session at once. Keys of this
// process may be missing, and deleted keys may exist again. The renewal finds out which.
func (s *store) suspect() {
	p := &s.past
	p.back.Store(true)
	p.mu.Lock()
	p.unsure = true
	p.mu.Unlock()
	s.tier.Renew()
}

// commit sends a transaction, and records the revision of the answer.
func (s *store) commit(txn clientv3.Txn) (*clientv3.TxnResponse, error) {
	known := s.past.known()
	answer, err := txn.Commit()
	if err == nil {
		s.hears(known, answer.Header.Revision)
	}
	return answer, err
}

// renew renews the lease. If etcd may have been set back, the renewal counts only after the keys of all contenders were checked. A lower
// revision in the answer to a keep-alive does not prove that, because the member that answers may lag behind. But renew then checks the
// keys, too.
func (s *store) renew(ctx context.Context, c queue.Command) (a queue.Answer, err error) {
	p := &s.past
	known := p.known()
	kept, err := s.client.KeepAliveOnce(ctx, leaseOf(c.Session))
	if err != nil {
		return a, err
	}
	p.mu.Lock()
	now := life{kept.ClusterId, kept.RaftTerm}
	p.unsure = p.unsure || now != p.life
	p.life = now
	unsure := p.unsure
	p.mu.Unlock()
	if !unsure && kept.Revision >= known {
		return a, nil
	}
	if a.Views, err = s.missing(ctx, c.Among); err != nil {
		return a, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.Doubt = p.unsure || len(c.Among) == 0; a.Doubt {
		s.names.doubt(c.Session)
		p.newest.Store(min(p.known(), kept.Revision))
	}
	p.unsure = false
	return a, nil
}

// inOne is how many keys one transaction reads. By default, a server accepts up to 128 operations in a transaction.
const inOne = 64

// The method missing returns views of the contenders whose keys do not exist any more. Each view says that the contender is not in the
// queue.
func (s *store) missing(ctx context.Context, refs []queue.Ref) (views []queue.View, err error) {
	for first := 0; first < len(refs); first += inOne {
		part := refs[first:min(first+inOne, len(refs))]
		var reads []clientv3.Op
		for _, ref := range part {
			reads = append(reads, clientv3.OpGet(keyOf(ref), clientv3.WithKeysOnly()))
		}
		answer, err := s.commit(s.client.Txn(ctx).Then(reads...))
		if err != nil {
			return nil, err
		}
		for i, ref := range part {
			kvs := answer.Responses[i].GetResponseRange().GetKvs()
			if ref.Token != 0 && (len(kvs) == 0 || kvs[0].CreateRevision != ref.Token) {
				views = append(views, queue.View{ID: ref.ID, Token: ref.Token, At: answer.Header.Revision})
			}
		}
	}
	return views, nil
}
