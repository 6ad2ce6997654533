package zklock

import (
	"fmt"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// A znode is what a node is on the server.
type znode struct {
	path    string
	watch   link.Watcher // of the znode itself
	watched bool         // its end is heard of; used by the attempt only
	version atomic.Int32 // of its content, as last seen
}

// znodes are those of one node: one, or a pair of which neither is worth anything alone.
type znodes []*znode

// newZnodes returns the znodes at paths. Changed is called when something happens to one.
func newZnodes(paths []string, changed func(*znode)) znodes {
	zs := make(znodes, len(paths))
	for i, path := range paths {
		z := &znode{path: path}
		z.watch.Notify = func() { changed(z) }
		zs[i] = z
	}
	return zs
}

// names returns the names below the lock path.
func (zs znodes) names() []string { return namesOf(zs.paths()) }

func (zs znodes) paths() []string {
	paths := make([]string, len(zs))
	for i, z := range zs {
		paths[i] = z.path
	}
	return paths
}

func namesOf(paths []string) []string {
	names := make([]string, len(paths))
	for i, path := range paths {
		names[i] = baseOf(path)
	}
	return names
}

// deletes are the operations that delete the znodes.
func (zs znodes) deletes() []any { return deletesOf(zs.paths()) }

func deletesOf(paths []string) []any {
	ops := make([]any, len(paths))
	for i, path := range paths {
		ops[i] = &zk.DeleteRequest{Path: path, Version: -1}
	}
	return ops
}

// deletesAsSeen are those that fail if somebody has written to a znode since it was last seen.
func (zs znodes) deletesAsSeen() []any {
	var ops []any
	for _, z := range zs {
		ops = append(ops, &zk.DeleteRequest{Path: z.path, Version: z.version.Load()})
	}
	return ops
}

// checks are the operations that do nothing, and fail unless the znodes are there.
func (zs znodes) checks() []any {
	var ops []any
	for _, z := range zs {
		ops = append(ops, &zk.CheckVersionRequest{Path: z.path, Version: -1}) // any version
	}
	return ops
}

// unwatched returns those whose end would not be heard of.
func (zs znodes) unwatched() []*znode {
	var unwatched []*znode
	for _, z := range zs {
		if !z.watched {
			unwatched = append(unwatched, z)
		}
	}
	return unwatched
}

// unseen is why a read of the znode failed.
func (z *znode) unseen(err error) error {
	switch classify(err) {
	case done:
		return nil
	case missing:
		return errGone
	}
	return fmt.Errorf("read %s: %w", z.path, lacking("READ", z.path, err))
}

// gone reports whether the znode is known to be deleted.
func (z *znode) gone() bool { return z.watch.Gone.Load() }

// gone reports whether all are known to be deleted.
func (zs znodes) gone() bool {
	for _, z := range zs {
		if !z.gone() {
			return false
		}
	}
	return true
}

// deleted notes what a server has answered to their delete: they are gone, or one of them was
// gone already. Of two that does not say which, and the other one is still there.
func (zs znodes) deleted(answer outcome) {
	if answer == done || answer == missing && len(zs) == 1 {
		for _, z := range zs {
			z.watch.Gone.Store(true)
		}
	}
}

// errDeleted says that a znode was deleted by somebody else.
func errDeleted(path string) error {
	return second.Lost(second.ByDeletion, "node %s was deleted", path)
}
