package etcdlock

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sync/errgroup"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

func TestEtcdsMutexAndWeExcludeEachOther(t *testing.T) {
	t.Parallel()
	p := start(t)
	lock := p.at(t, lockPath(t))
	session, err := concurrency.NewSession(outside(t), concurrency.WithTTL(5))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	theirs := concurrency.NewMutex(session, lockPath(t))

	ours := mustAcquire(t, lock)
	wantErr(t, theirs.TryLock(soon(t)), concurrency.ErrLocked)
	locked := make(chan error, 1)
	go func() { locked <- theirs.Lock(soon(t)) }()
	ended(t, "contested", ours.Contested().C(), ttl)
	mustRelease(t, ours)
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	_, err = lock.TryAcquire(soon(t))
	wantErr(t, err, second.ErrLocked)
	w := queueAt(t, lock)
	w.pending(t)
	if queue, err := lock.Contenders(soon(t)); err != nil || len(queue) != 2 || queue[0].PID != 0 || queue[1].PID != os.Getpid() {
		t.Errorf("contenders %v, %v", queue, err)
	}
	if err := theirs.Unlock(soon(t)); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, w.must(t))
}

func TestEtcdsMutexAndOurReadersExcludeEachOther(t *testing.T) {
	t.Parallel()
	session, err := concurrency.NewSession(outside(t), concurrency.WithTTL(5))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	theirs := concurrency.NewMutex(session, lockPath(t))
	l := start(t).in(t, lockPath(t), second.Reading)
	readers := []*queue.Contender{mustAcquire(t, l), mustAcquire(t, start(t).in(t, lockPath(t), second.Reading))}
	wantErr(t, theirs.TryLock(soon(t)), concurrency.ErrLocked)
	locked := make(chan error, 1)
	go func() { locked <- theirs.Lock(soon(t)) }()
	ended(t, "contested", readers[0].Contested().C(), ttl)
	w := queueAt(t, l)
	mustRelease(t, readers[0])
	select {
	case err := <-locked:
		t.Fatalf("locked beside a reader: %v", err)
	case <-time.After(200 * time.Millisecond): // longer than their watch may take
	}
	w.pending(t)
	mustRelease(t, readers[1])
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	w.pending(t)
	_, err = l.TryAcquire(soon(t))
	wantErr(t, err, second.ErrLocked)
	if err := theirs.Unlock(soon(t)); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, w.must(t))
}

func TestManyOfEtcdsMutexesAndOfUsAreOneAtATime(t *testing.T) {
	t.Parallel()
	var inside, turns atomic.Int32
	turn := func() {
		if n := inside.Add(1); n != 1 {
			t.Errorf("%d at a time", n)
		}
		turns.Add(1)
		inside.Add(-1)
	}
	var all errgroup.Group
	const each = 15
	for range 2 {
		lock := start(t).at(t, lockPath(t))
		all.Go(func() error {
			for range each {
				g, err := lock.Acquire(soon(t))
				if err != nil {
					return err
				}
				turn()
				if err := g.Release(); err != nil {
					return err
				}
			}
			return nil
		})
		session, err := concurrency.NewSession(outside(t), concurrency.WithTTL(5))
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		theirs := concurrency.NewMutex(session, lockPath(t))
		all.Go(func() error {
			for range each {
				if err := theirs.Lock(soon(t)); err != nil {
					return err
				}
				turn()
				if err := theirs.Unlock(soon(t)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
	if n := turns.Load(); n != 4*each {
		t.Errorf("%d turns", n)
	}
}

func TestEtcdctlLockAndWeExcludeEachOther(t *testing.T) {
	t.Parallel()
	etcdctl, err := exec.LookPath("etcdctl")
	if err != nil {
		t.Skip("no etcdctl; it locks with concurrency.Mutex")
	}
	lock := start(t).at(t, lockPath(t))
	ours := mustAcquire(t, lock)
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	theirs := exec.CommandContext(ctx, etcdctl, "--endpoints", server(t).Addr(), "lock", lockPath(t))
	theirs.Cancel = func() error { return theirs.Process.Signal(os.Interrupt) }
	theirs.Env = append(os.Environ(), "ETCDCTL_API=3")
	out, err := theirs.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := theirs.Start(); err != nil {
		t.Fatal(err)
	}
	locked := make(chan bool, 1)
	go func() { locked <- bufio.NewScanner(out).Scan() }() // it prints its key
	ended(t, "contested", ours.Contested().C(), ttl)
	select {
	case <-locked:
		t.Error("etcdctl does not wait for us")
	default:
	}
	mustRelease(t, ours)
	if !<-locked {
		t.Fatal("etcdctl has not locked")
	}
	_, err = lock.TryAcquire(soon(t))
	wantErr(t, err, second.ErrLocked)
	cancel()
	theirs.Wait()
	mustRelease(t, mustAcquire(t, lock))
}
