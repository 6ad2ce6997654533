package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// values is what the keys of all values begin with. No lock can be there, and no value is below the path of its lock: other libraries
// would wait for it.
const values = "//tierlock/values/"

// errRaced means that another process has written to the key of a value meanwhile, and that nothing was changed.
var errRaced = errors.New("the value was written meanwhile")

// save writes the value of a contender, unless a later write of that contender was executed. Most often the text that is there is less:
// it has a lower token, or a lower turn. Otherwise save reads what is there, and writes if that has not changed since.
func (s *store) save(ctx context.Context, c queue.Command) error {
	key, text := values+c.Path, second.EncodeValue(c.Token, c.Turn, time.Now(), c.Data)
	write := clientv3.OpPut(key, text)
	if c.Data == nil && c.Turn == 1 { // no earlier write of this contender can be late
		write = clientv3.OpDelete(key)
	}
	unless := func(condition clientv3.Cmp, otherwise clientv3.Op) clientv3.Op {
		return clientv3.OpTxn([]clientv3.Cmp{condition}, []clientv3.Op{write}, []clientv3.Op{otherwise})
	}
	missing, less := clientv3.Compare(clientv3.CreateRevision(key), "=", 0), clientv3.Compare(clientv3.Value(key), "<", text)
	answer, err := s.commit(s.client.Txn(ctx).If(created(c.Ref)).Then(unless(missing, unless(less, clientv3.OpGet(key)))))
	if err != nil || !answer.Succeeded {
		return cmp.Or(err, errGone)
	}
	if answer = nested(answer); answer.Succeeded {
		return nil
	}
	if answer = nested(answer); answer.Succeeded {
		return nil
	}
	known := answer.Responses[0].GetResponseRange().Kvs[0]
	if v, turn, err := second.DecodeValue(known.Value); err != nil {
		return denied{fmt.Errorf("%s: %w; delete the key", key, err)}
	} else if v.Token == c.Token && turn >= c.Turn {
		return nil
	}
	same := clientv3.Compare(clientv3.ModRevision(key), "=", known.ModRevision)
	answer, err = s.commit(s.client.Txn(ctx).If(created(c.Ref)).Then(clientv3.OpTxn([]clientv3.Cmp{same}, []clientv3.Op{write}, nil)))
	if err != nil || !answer.Succeeded {
		return cmp.Or(err, errGone)
	}
	if !nested(answer).Succeeded {
		return errRaced
	}
	return nil
}

// nested is the answer to the transaction in another one.
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
