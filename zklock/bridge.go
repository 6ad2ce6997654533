package zklock

import (
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
)

// newPrefixes returns the names of the znodes of a new node, up to their sequence
// numbers. The second one, for kazoo, begins like the first and not in kazoo's own way
// with a hexadecimal number: Curator compares the whole of a name that it does not know
// with the numbers of those that it does, and would take one that begins with zeros for
// a predecessor. It never takes "_" for one.
func (l *Lock) newPrefixes() []string {
	id := newID()
	if l.client.options.kazoo {
		return []string{id + mutexMarker, id + kazooMarker}
	}
	return []string{id + mutexMarker}
}

// creates are the operations that make the znodes with these prefixes. kazoo shows the
// content of the second one to people and fails unless it is UTF-8, so that is always
// the description of the process.
func (l *Lock) creates(prefixes []string) []any {
	var ops []any
	for i, prefix := range prefixes {
		data := l.content()
		if i > 0 {
			data = l.describe()
		}
		ops = append(ops, &zk.CreateRequest{
			Path: l.path + "/" + prefix, Data: data, Acl: l.acl,
			Flags: zk.FlagEphemeral | zk.FlagSequence,
		})
	}
	return ops
}

// transact creates and deletes znodes, all or none, and returns the paths of the new
// ones. One operation alone needs no transaction.
func (c *Client) transact(ops ...any) (created []string, err error) {
	if len(ops) == 1 {
		switch op := ops[0].(type) {
		case *zk.CreateRequest:
			path, err := c.conn.Create(op.Path, op.Data, op.Flags, op.Acl)
			if err == nil {
				err = checkCreated(op, path)
			}
			return []string{path}, err
		case *zk.DeleteRequest:
			return nil, c.conn.Delete(op.Path, op.Version)
		}
	}
	results, err := c.multi(ops...)
	if err != nil {
		return nil, err
	}
	for i, op := range ops {
		if op, ok := op.(*zk.CreateRequest); ok {
			if err := checkCreated(op, results[i].String); err != nil {
				return nil, err
			}
			created = append(created, results[i].String)
		}
	}
	return created, nil
}

// multi runs a transaction. Without an error there are as many results as operations.
func (c *Client) multi(ops ...any) ([]zk.MultiResponse, error) {
	results, err := c.conn.Multi(ops...)
	if err == nil && len(results) != len(ops) {
		return nil, fmt.Errorf("the server answered %d results to %d operations", len(results), len(ops))
	}
	return results, err
}

// checkCreated refuses a path that the server cannot have given to a sequential znode.
// Like any other answer that does not fit, it leaves the outcome unknown.
func checkCreated(op *zk.CreateRequest, path string) error {
	number, ok := strings.CutPrefix(path, op.Path)
	if !ok || number == "" || strings.Contains(number, "/") {
		return fmt.Errorf("the server answered %q to the creation of %s", path, op.Path)
	}
	return nil
}

// paired reports whether two names in a row are those of one node. They are created in
// one transaction, so nobody is between them, and whoever made them has lost the lock
// when one of them is gone.
func paired(first, second string) bool {
	_, m, ok1 := parseName(first)
	_, k, ok2 := parseName(second)
	id, bridged := strings.CutSuffix(second[:max(len(second)-sequenceDigits, 0)], kazooMarker)
	return ok1 && ok2 && bridged && k == m+1 && strings.HasPrefix(id, "_c_") &&
		first[:len(first)-sequenceDigits] == id+mutexMarker
}
