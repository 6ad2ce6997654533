package tier_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A crew is one process. Its goroutines use the lock.
type crew struct {
	mutex      *tier.Mutex
	goroutines int
	section    func(*rand.Rand) time.Duration
}

// The function exponential returns a function for random lengths of sections, with an exponential distribution and the given mean.
func exponential(mean time.Duration) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(mean)) }
}

// A share is the part of the time for which one crew had the lock.
type share struct {
	had     time.Duration // the total length of its sections
	tenures int           // how often the lock has come to it from another process
	away    time.Duration // the longest time between two of its sections while other crews had the lock
	ended   time.Time     // the end of its last section
}

// compete lets the crews use the lock for the given time, and returns the share of each crew.
func compete(t *testing.T, length time.Duration, crews ...crew) []share {
	t.Helper()
	const seed = 41
	t.Logf("seed %d", seed)
	shares, owner := make([]share, len(crews)), -1 // both variables are guarded by the lock under test
	end := time.Now().Add(length)
	var all sync.WaitGroup
	for i, c := range crews {
		for g := range c.goroutines {
			all.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(i<<16|g)))
				for time.Now().Before(end) {
					hold := acquire(t, c.mutex)
					s := &shares[i]
					if owner != i {
						if s.tenures++; !s.ended.IsZero() {
							s.away = max(s.away, time.Since(s.ended))
						}
					}
					owner = i
					d := c.section(random)
					time.Sleep(d)
					s.had, s.ended = s.had+d, time.Now()
					release(t, hold)
				}
			})
		}
	}
	all.Wait()
	return shares
}

// The function jain returns Jain's index of fairness. It is 1 if all crews had the lock for the same time.
func jain(shares []share) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum, squares = sum+s.had.Seconds(), squares+s.had.Seconds()*s.had.Seconds()
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// at(…) starts another process and returns its registry. to and back return how long a message takes to the server, and from the server.
func at(t *testing.T, s *zktest.Server, to, back func() time.Duration, opts ...tier.RegistryOption) *tier.Registry {
	t.Helper()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		server, err := s.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		client, proxy := net.Pipe()
		go carry(server, proxy, to)
		go carry(proxy, server, back)
		return client, nil
	}
	locks := need.Get(zklock.Dial(t.Context(), "127.0.0.1", append(opts, zklock.WithDialContext(dial))...))(t)
	t.Cleanup(func() { locks.Close() })
	return locks
}

// The function carry forwards messages from one connection to the other, in order, until one of the connections is closed.
func carry(to, from net.Conn, takes func() time.Duration) {
	type message struct {
		bytes []byte
		due   time.Time
	}
	way := make(chan message, 1<<10)
	go func() {
		defer to.Close()
		for m := range way {
			time.Sleep(time.Until(m.due))
			to.Write(m.bytes) // if that fails, the other direction closes both connections
		}
	}()
	defer close(way)
	defer from.Close()
	for {
		bytes := make([]byte, 1<<12)
		n, err := from.Read(bytes)
		if err != nil {
			return
		}
		way <- message{bytes[:n], time.Now().Add(takes())}
	}
}

func after(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// In an earlier design, a far process asked for a larger budget. Near processes learned of that at different times, which kept the lock
// from one of them.
func TestAFarProcessLeavesEqualSharesToEqualOnes(t *testing.T) {
	for far, near := range map[time.Duration]int{5 * time.Millisecond: 3, 20 * time.Millisecond: 6, 100 * time.Millisecond: 3} {
		t.Run(fmt.Sprintf("%d near, and one at %v", near, far), func(t *testing.T) {
			locktest.Bubble(t, func(t *testing.T, s *zktest.Server) {
				var crews []crew
				join := func(oneWay time.Duration, goroutines int) {
					locks := at(t, s, after(oneWay), after(oneWay))
					crews = append(crews, crew{locks.Mutex("/locks/a"), goroutines, exponential(time.Millisecond)})
				}
				for range near {
					join(time.Millisecond/4, 10)
				}
				join(far/2, 1)
				shares := compete(t, 5*time.Second, crews...)
				t.Logf("shares: %+v", shares)
				need.AtLeast(t, "the fairness among the near ones", jain(shares[:near]), 0.98)
			})
		})
	}
}

// How long a process waits depends on the sections of the slow process. It does not depend on the delays which the slow process measures.
func TestOneSlowProcessKeepsOthersWaitingForItsSectionsOnly(t *testing.T) {
	longest := func(t *testing.T, slowness time.Duration) (away time.Duration) {
		locktest.Bubble(t, func(t *testing.T, s *zktest.Server) {
			var crews []crew
			for i := range 4 {
				slow := time.Duration(1)
				if i == 0 {
					slow = slowness
				}
				oneWay := slow * time.Millisecond / 4
				locks := at(t, s, after(oneWay), after(oneWay))
				crews = append(crews, crew{locks.Mutex("/locks/a"), 10, func(*rand.Rand) time.Duration { return slow * time.Millisecond }})
			}
			for _, other := range compete(t, 5*time.Second, crews...)[1:] {
				away = max(away, other.away)
			}
		})
		return away
	}
	equal, one := longest(t, 1), longest(t, 5)
	t.Logf("%v, and %v beside one at a fifth of its processor", equal, one)
	need.AtMost(t, "the longest absence of others", one, equal*3/2)
}

func TestLateRepliesOfOneProcessDoNotLengthenTheRotationOfOthers(t *testing.T) {
	rotation := func(t *testing.T, late time.Duration) (longest time.Duration) {
		const length = 5 * time.Second
		locktest.Bubble(t, func(t *testing.T, s *zktest.Server) {
			var crews []crew
			for i := range 4 {
				back := after(time.Millisecond / 4)
				if random := rand.New(rand.NewPCG(41, 0)); i == 0 {
					back = func() time.Duration {
						if random.IntN(10) < 4 {
							return late
						}
						return time.Millisecond / 4
					}
				}
				locks := at(t, s, after(time.Millisecond/4), back)
				crews = append(crews, crew{locks.Mutex("/locks/a"), 10, exponential(time.Millisecond)})
			}
			for _, other := range compete(t, length, crews...)[1:] {
				longest = max(longest, length/time.Duration(other.tenures))
			}
		})
		return longest
	}
	prompt, late := rotation(t, time.Millisecond/4), rotation(t, 50*time.Millisecond)
	t.Logf("%v, and %v beside one with late replies", prompt, late)
	// In one transfer, the notification of the grant may be late. In another one, the request that reads the queue may be late. Then the
	// lock stays longer.
	need.AtMost(t, "a rotation", late, prompt+2*50*time.Millisecond)
}

// Another program or an operator may create a child of the lock's node that is no contender. Such a child changes no wait, whatever its
// name is.
func TestForeignChildrenOfAnyNameLengthenNoWait(t *testing.T) {
	const uuid = "00000000-0000-8000-bf00-000000000000"
	foreign := []string{
		"old" + uuid, "_c_" + uuid + "-", "_c_" + uuid + "-lock-", "_c_" + uuid + "-lock-x", "_c_" + uuid + "-lease-0000000000",
		"leases", "locks", "budget=4700", "lock--", "\u202e", `{"v":1,"linger_ms":1000000,"budget":63}`, uuid + "-0000000000",
	}
	locktest.Bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, _, err := zk.Connect([]string{"127.0.0.1:2181"}, 10*time.Second, zk.WithDialer(s.DialTimeout), zk.WithLogInfo(false))
		need.OK(t, err)
		defer conn.Close()
		for _, path := range []string{"/locks", "/locks/a"} {
			need.Get(conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)))(t)
		}
		for _, name := range foreign {
			need.Get(conn.Create("/locks/a/"+name, []byte(`{"v":1,"linger_ms":9000000,"revoke":true,"budget":63}`), 0, zk.WorldACL(zk.PermAll)))(t)
		}
		var crews []crew
		for range 3 {
			locks := at(t, s, after(time.Millisecond/4), after(time.Millisecond/4))
			crews = append(crews, crew{locks.Mutex("/locks/a"), 10, func(*rand.Rand) time.Duration { return time.Millisecond }})
		}
		for i, one := range compete(t, 5*time.Second, crews...) {
			need.AtMost(t, fmt.Sprintf("the longest absence of process %d", i), one.away, 2*(20+2+1)*time.Millisecond)
			need.AtLeast(t, fmt.Sprintf("the time that process %d had", i), one.had, 5*time.Second/4)
		}
	})
}
