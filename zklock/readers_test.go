package zklock_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// as returns the process with a lock of another mode.
func (p process) as(m second.Mode) process {
	p.lock = p.lock.Mode(m)
	return p
}

func (p process) reading() process { return p.as(second.Reading) }
func (p process) writing() process { return p.as(second.Writing) }

// Writers go on as a mutex does: with the departure of the last one, and nothing else.
func TestHandOverFromWriterToWriterIsOneRoundTrip(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, *zktest.Server, ...zklock.Option) process{"plain": start, "WithKazoo": bridge} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const roundTrip, pause = 40 * time.Millisecond, 100 * time.Millisecond // all before anybody looks again by itself
				s := zktest.Start(t, zktest.Config{Latency: roundTrip / 2})
				holder := begin(t, s).writing().acquire(t)
				var queue []*request
				for range 5 {
					queue = append(queue, begin(t, s).writing().queue(t.Context()))
					time.Sleep(pause)
				}
				for _, next := range queue {
					began := time.Now()
					go holder.Release()
					next.await(t)
					if took := time.Since(began); took != roundTrip {
						t.Errorf("a hand-over took %v, want %v", took, roundTrip)
					}
					holder = next.granted(t)
					time.Sleep(pause)
				}
				holder.Release()
			})
		})
	}
}

// What is behind a Curator writer asks whether a reader with its number is left.
func TestAWriterWaitsForTheReaderThatACuratorWriterHasBecome(t *testing.T) { // I1
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		put(t, conn, 0, "/locks", path)
		const id = path + "/_c_01234567-89ab-4def-8123-456789abcdef-"
		write, err := conn.Create(id+"__WRIT__", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		if err != nil {
			t.Fatal(err)
		}
		w := start(t, s).writing().queue(t.Context())
		read := id + "__READ__" + write[len(write)-10:]
		put(t, conn, zk.FlagEphemeral, read)
		conn.Delete(write, -1)
		if !w.waiting() {
			t.Fatal("granted beside a reader")
		}
		conn.Delete(read, -1)
		w.granted(t)
	})
}

func TestReadersAndWritersArePairsForKazoo(t *testing.T) {
	for mode, want := range map[second.Mode][2]string{
		second.Writing: {"-__WRIT__0000000000", "-__lock__0000000001"},
		second.Reading: {"-__READ__0000000000", "-__rlock__0000000001"},
	} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			p := bridge(t, s).as(mode)
			n := p.acquire(t)
			names := s.Children(path)
			slices.Sort(names)
			if len(names) != 2 || names[0][39:] != want[0] || names[1][39:] != want[1] || names[0][:39] != names[1][:39] {
				t.Errorf("got %q, want …%s and …%s of one id", names, want[0], want[1])
			}
			queue, err := p.lock.Contenders(t.Context())
			if err != nil || len(queue) != 1 || path+"/"+queue[0].Node != n.Path() || queue[0].Pair == "" {
				t.Errorf("Contenders: got %+v, %v", queue, err)
			}
			again := submit(func() (*zklock.Node, error) { return n.Requeue(t.Context()) }).granted(t)
			again.Release()
			wantEmpty(t, s)
		})
	}
}

func TestPairsOfReadersAndWritersExclude(t *testing.T) { // I1
	bubble(t, func(t *testing.T, s *zktest.Server) {
		first, other := bridge(t, s).reading().acquire(t), start(t, s).reading().acquire(t)
		w, plain := bridge(t, s).writing().queue(t.Context()), start(t, s).writing().queue(t.Context())
		late := bridge(t, s).reading().queue(t.Context())
		first.Release()
		if !w.waiting() {
			t.Fatal("granted beside a reader")
		}
		other.Release()
		n := w.granted(t)
		if !plain.waiting() || !late.waiting() {
			t.Fatal("granted beside a writer")
		}
		n.Release()
		n = plain.granted(t)
		if !late.waiting() {
			t.Fatal("granted beside a writer")
		}
		n.Release()
		late.granted(t).Release()
		wantEmpty(t, s)
	})
}

func TestContendersTellReadersFromWriters(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.reading().acquire(t)
		start(t, s).writing().queue(t.Context())
		start(t, s).queue(t.Context())
		queue, err := p.lock.Contenders(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, c := range queue {
			kinds = append(kinds, string(c.Kind))
		}
		if got := strings.Join(kinds, " "); got != "tierlock-read tierlock-write tierlock" {
			t.Errorf("got %s", got)
		}
		claim, err := second.TierOf(p.Client).Claim(path, second.Options{Mode: second.Reading})
		if err != nil {
			t.Fatal(err)
		}
		contenders, err := claim.Contenders(t.Context())
		if err != nil || len(contenders) != 3 || !contenders[0].Shared || contenders[1].Shared || contenders[2].Shared {
			t.Errorf("the gate sees %+v, %v", contenders, err)
		}
		if other, err := second.TierOf(p.Client).Claim(path, second.Options{Mode: second.Writing}); err != nil || claim.Equal(other) {
			t.Errorf("claims of two modes are equal: %v", err)
		}
	})
}
