package etcdlock

import (
	"cmp"
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// The constant values is the prefix of the keys of all values. No lock can have such a key. A value is not stored below the path of its
// lock, because other libraries would wait for that key.
const values = "//tierlock/values/"

// save writes the value of a contender, unless a later write of that contender was executed. The transaction compares the stored text with
// the new one: both begin with token and turn, with leading zeros, so an earlier write is lower as text, too.
func (s *store) save(ctx context.Context, c queue.Command) error {
	key, text := values+c.Path, second.EncodeValue(c.Token, c.Turn, time.Now(), c.Data)
	write := clientv3.OpPut(key, text)
	if c.Data == nil && c.Turn == 1 { // this contender has sent no earlier write that could be executed late
		write = clientv3.OpDelete(key)
	}
	unless := func(condition clientv3.Cmp, otherwise clientv3.Op) clientv3.Op {
		return clientv3.OpTxn([]clientv3.Cmp{condition}, []clientv3.Op{write}, []clientv3.Op{otherwise})
	}
	before, less := clientv3.Compare(clientv3.ModRevision(key), "<", c.Token), clientv3.Compare(clientv3.Value(key), "<", text)
	answer, err := s.commit(s.client.Txn(ctx).If(created(c.Ref)).Then(unless(before, unless(less, clientv3.OpGet(key)))))
	if err != nil || !answer.Succeeded {
		return cmp.Or(err, errGone)
	}
	for answer = nested(answer); !answer.Succeeded; answer = nested(answer) {
		if known := answer.Responses[0].GetResponseRange(); known != nil {
			v, _, err := second.DecodeValue(known.Kvs[0].Value)
			if err != nil || v.Token != c.Token {
				return denied{fmt.Errorf("another program has written to the key %s; delete it", key)}
			}
			return nil
		}
	}
	return nil
}

// nested returns the answer to the transaction that is the first operation of another one.
func nested(answer *clientv3.TxnResponse) *clientv3.TxnResponse {
	return (*clientv3.TxnResponse)(answer.Responses[0].GetResponseTxn())
}

func (s *store) load(ctx context.Context, path string) (*second.Value, error) {
	answer, err := s.client.Get(ctx, values+path) // linearizable by default
	if err != nil || len(answer.Kvs) == 0 {
		return nil, err
	}
	v, _, err := second.DecodeValue(answer.Kvs[0].Value)
	if err != nil {
		return nil, denied{fmt.Errorf("%s%s: %w; delete the key", values, path, err)}
	}
	if v.Data == nil {
		return nil, nil
	}
	return &v, nil
}
