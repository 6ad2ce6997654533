package explore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/fault"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// The name of a scenario says what must happen in it.
type scenario struct {
	name string
	run  func(t *testing.T)
}

func runAll(t *testing.T, scenarios []scenario) {
	for _, sc := range scenarios {
		t.Run(sc.name, sc.run)
	}
}

// The edge cases of a lock on ZooKeeper have the numbers 1 to lastCase. They follow the life of a lock: before and during the creation of
// its node, while it waits, while it is held, and the end of the session and of the client.
const lastCase = 75

// notPlayed lists the cases that have no scenario of their own, with the reasons.
var notPlayed = map[int]string{
	1:  "cancelled before the start: tier, TestAcquireWithDoneContextSendsNothing",
	2:  "cancelled at the gate: internal/test/explore, and tier, TestStatsOfATurnThatNobodyTakes",
	3:  "cancelled while the create cannot be sent: the matrix, idle/create/not sent, and tiertest, left-cancelled and bounds-cut",
	4:  "cancelled with the create in flight: the matrix, idle/create/later than …",
	5:  "create applied, reply lost: the matrix, idle/create, which counts the nodes",
	12: "missing parents: zklock, TestOnlyMissingParentsAreMade, TestParentsThatOthersMakeAndTakeAwayAreMadeAnewAtOnce and its neighbours",
	14: "no permission to create or to list: zklock, TestAMissingPermissionIsNamedWithItsNode and TestNoParentIsLeftWithoutAChild",
	15: "no permission to delete: zklock, TestAProcessThatWaitsBehindItsOwnNodeSaysSo",
	16: "no permission to list: 14",
	19: "bad paths: zklock, TestValidatePath, and tier, TestWrongOptionIsReportedByTheMethodsOfTheMutex",
	20: "a label of 256 bytes and one more: zklock, TestDialRefusesBadOptionsByName",
	22: "numbers near their end, negative or twice: zklock, TestStand and TestAStrayChildIsNamed",
	23: "foreign children: zklock, TestStand, and internal/zkqueue, TestParseName",
	26: "death in the middle of the queue: zklock, TestTheLastDepartureMakesHeadIfEverybodyAheadWasWatched, and tiertest, left-kill",
	27: "event and cancel at once: tiertest, left-cancelled, which ends the context at each event, too",
	29: "deletion during a disconnect: f5, and zklock/internal/link, TestNoEventIsLostThoughSettingWatchesTakesSeveralRequests",
	31: "partition beyond the session while waiting: 30, and the matrix, waiting/…/not sent/new session",
	36: "a closed watch channel is no wake: no watch channel is read, events come from the library's callback",
	38: "the end of a node wakes one waiter: tier, TestFramesOfAStrictTurn",
	39: "close while waiting: the matrix, waiting/…/closed, and tiertest, close",
	42: "suspended within the lease: tiertest, unreachable, and tier, TestNodeIsNeitherHandedOffNorKeptWhileTheConnectionIsDown",
	43: "a lease that is over stays so in a session that lives: tiertest, loss-cut and loss-stopped",
	44: "own node deleted by others: zklock, TestLockIsLostWithItsNodeAtOnce, and tiertest, removal",
	45: "a suspended machine: tiertest, loss-slept; one that its hypervisor pauses cannot notice, which is what tokens are for",
	46: "uncertain delete: the matrix, releasing/delete",
	47: "release does not wait for the network: the matrix, releasing, and tiertest, bounds",
	48: "release after a loss: 41",
	50: "re-entry after the lease: tier, TestReentryFailsAfterLoss",
	51: "a release too many: tier, TestReleaseTooManySendsNothing",
	52: "a panic in the section: tier, TestDoReleasesHoweverItsFunctionEnds",
	53: "close of the holder: 41",
	54: "hand-offs end with the budget and with the lease: internal/test/explore, and tiertest, budget and hold-lost",
	55: "waiters do not inherit a loss: tier, TestLostNodeIsNotOffered and TestGateStaysShutUntilTheLostHoldIsReleased",
	56: "shorter timeout from another server: zklock, TestReconnectRenewsTheLeaseFromItsHandshake",
	57: "a single server is dialed at once: zklock/internal/link, TestALoneServerIsDialedAgainWithoutAPause",
	58: "hung server: TestHungMemberDoesNotCostTheSession, and zklock/internal/link, TestEachAddressOfANameIsTriedWithoutAPause",
	61: "moved session: the matrix, reply lost, as zklock, TestWhatAnErrorSaysOfItsRequest says",
	62: "no quorum: tiertest, unreachable, zklock, TestOutageIsLoggedOnceWithItsReason, and link, TestDialTellsWhatIsWrongWithThePort",
	63: "refused handshakes: 62",
	64: "heavy traffic of the user on the connection: a client shares its connection with nobody",
	65: "a callback that blocks or panics: users cannot give one, and ours only sets booleans",
	68: "two acquisitions of one process exclude each other: tiertest, bounds",
	70: "container that goes under a create: zklock, TestParentsThatOthersMakeAndTakeAwayAreMadeAnewAtOnce",
	71: "nothing is remembered of the parents: 13",
	75: "local sessions: 18",
}

func TestEveryCaseIsPlayedOrExplained(t *testing.T) {
	scenarios := slices.Concat(
		createScenarios, parentScenarios, limitScenarios, waitingScenarios, holdingScenarios, serverScenarios, sessionScenarios)
	times := make(map[int]int)
	for _, sc := range scenarios {
		n, err := strconv.Atoi(sc.name[:2])
		need.Must(t, fmt.Sprintf("scenario %q: want a case number and what must happen", sc.name), err == nil && sc.name[2] == '_')
		times[n]++
	}
	for n, reason := range notPlayed {
		t.Logf("%d is not played: %s", n, reason)
		times[n]++
	}
	for n := 1; n <= lastCase; n++ {
		need.Equal(t, fmt.Sprintf("times that case %d is covered", n), times[n], 1)
		delete(times, n)
	}
	for n := range times {
		t.Errorf("there is no case %d", n)
	}
}

func TestBeforeAndAtCreate(t *testing.T) { runAll(t, createScenarios) }

var createScenarios = []scenario{
	{"06_create_applied_reply_lost_is_adopted_through_a_lagging_server", play(func(s *scene) {
		p := s.join(role{members: 2})
		p.acquire().end()
		behindAll := s.fallBackToLaggard(p, "create")
		p.acquire()
		need.Equal(s, "nodes were created", s.nodes(), 2)
		need.Equal(s, "times that the fault struck", behindAll.Struck(), 1)
	})},

	{"07_no_second_create_before_a_look_up_succeeds", each(map[string]fault.Fault{
		"write lost":    {Op: "multi", At: zktest.Reply, Do: zktest.Cut, Times: 5},
		"write refused": {Op: "multi", At: zktest.Request, Do: fault.Refusal(wire.CodeOperationTimeout), Times: 5},
		"listing lost":  {Op: "getChildren2", At: zktest.Request, Do: zktest.Cut, Times: 5},
		"no connection": {Op: "connect", At: zktest.Request, Do: zktest.Cut, Times: 5},
	}, func(s *scene, trouble fault.Fault) {
		p := s.join(role{})
		p.arm(fault.Fault{Op: "create", At: zktest.Reply, Do: zktest.Cut, Times: 1,
			Before: func(*zktest.Frame) { p.arm(trouble) }})
		p.acquire()
		need.Equal(s, "nodes were created", s.nodes(), 1)
	})},

	{"08_of_two_own_nodes_the_older_goes", play(func(s *scene) {
		p := s.join(role{})
		p.arm(fault.Fault{Op: "create", At: zktest.Reply, Do: zktest.Cut, Times: 1, Before: func(*zktest.Frame) {
			p.arm(fault.Fault{Op: "multi", At: zktest.Request, Do: zktest.Cut, Times: 3})
		}})
		p.start(s.in(5*time.Millisecond)).failed(5*time.Millisecond, errDeadline)
		p.acquire()
		need.Equal(s, "nodes were created", s.nodes(), 2)
		need.Equal(s, "the newer is left", len(s.srv.Children(lockPath)), 1)
	})},

	{"09_create_run_under_a_new_session_is_bound_to_it", play(func(s *scene) {
		p := s.join(role{members: 3}) // with several members, the client library drops queued requests when it starts its list anew
		const locks = 4
		path := func(i int) string { return fmt.Sprintf("/locks/queued-%d", i) }
		for i := range locks { // creates the parents of the lock nodes
			p.acquireAt(path(i)).end()
		}
		old, before := p.session(), s.nodes()
		p.net.stall()
		var turns []*turn
		for i := range locks { // one request fills the connection, and the others wait behind it
			turns = append(turns, p.startAt(s.Context(), path(i)))
			synctest.Wait()
		}
		s.srv.Expire(old)
		synctest.Wait() // lets the connection end before the write returns
		p.net.resume()
		for _, u := range turns {
			u.granted(bound).keeps()
		}
		need.Equal(s, "nodes were created", s.nodes()-before, locks)
		s.srv.Expire(p.session())
		for _, u := range turns {
			u.lost(time.Second)
		}
	})},

	{"10_create_in_flight_when_the_session_expires_begins_anew", each(map[string]zktest.Action{
		"dropped":  zktest.Pass,
		"answered": zktest.Error(zk.ErrSessionExpired),
	}, func(s *scene, fate zktest.Action) {
		p := s.join(role{})
		session := p.session()
		p.arm(fault.Fault{Op: "create", At: zktest.Request, Times: 1, Do: fate,
			Before: func(*zktest.Frame) { s.srv.Expire(session) }})
		p.acquire().keeps()
		need.Equal(s, "nodes were created", s.nodes(), 1)
	})},

	{"11_node_of_the_own_old_session_is_waited_for", each(map[string]bool{
		"held": true, "waited": false,
	}, func(s *scene, held bool) {
		p, q := s.join(role{}), s.join(role{})
		// The process cannot delete its old node. That node ends with its session.
		p.arm(fault.Fault{Op: "delete", At: zktest.Request, Do: zktest.Throttled})
		var other *turn
		if !held {
			other = q.acquire()
		}
		u := p.start(s.Context())
		synctest.Wait()
		old := p.session()
		s.forgeExpiry(p)
		if held {
			u.lost(time.Second).end()
			u = p.start(s.Context())
		} else {
			other.end()
		}
		time.Sleep(sessionTimeout / 2)
		u.waits()
		u.granted(bound)
		for _, sess := range s.srv.Sessions() {
			need.That(s, "granted while the old session lives", sess.ID != old)
		}
	})},
}

// fallBackToLaggard loses the reply to the next request with the operation op. After that, the process can reach only a server that does
// not know of this request yet.
func (s *scene) fallBackToLaggard(p *actor, op string) *fault.Armed {
	s.Helper()
	at := p.member()
	for _, addr := range p.servers {
		if addr != at {
			s.srv.Member(addr).Lag()
		}
	}
	return p.arm(fault.Fault{Op: op, At: zktest.Reply, Do: zktest.Cut, Times: 1,
		Before: func(*zktest.Frame) { s.srv.Member(at).Refuse() }})
}

// forgeExpiry makes the process believe that its session has expired, although the session still exists.
func (s *scene) forgeExpiry(p *actor) {
	s.Helper()
	session := p.session()
	forged := p.arm(fault.Fault{Op: "connect", At: zktest.Request, Do: zktest.Error(zk.ErrSessionExpired), Times: 1})
	s.srv.Cut(session)
	<-forged.Hit
}

var errDeadline = context.DeadlineExceeded

func TestParentsAndPermissions(t *testing.T) { runAll(t, parentScenarios) }

var parentScenarios = []scenario{
	{"13_ephemeral_ancestor_is_permanent", play(func(s *scene) {
		p := s.join(role{})
		p.acquire().end() // the process does not remember that the parents exist
		s.deleteAll("/locks")
		_, err := s.admin().Create("/locks", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		s.must(err)
		first, second := p.start(s.Context()), p.start(s.Context())
		first.failed(0, zk.ErrNoChildrenForEphemerals)
		second.failed(0, zk.ErrNoChildrenForEphemerals)
		s.must(s.admin().Delete("/locks", -1))
		p.start(s.Context()).granted(time.Second)
	})},
}

// deleteAll deletes a path and everything below it in one step, as an operator would. With several steps, a process that has lost its node
// could queue again in between.
func (s *scene) deleteAll(path string) {
	s.Helper()
	var deletes []any
	var add func(path string)
	add = func(path string) {
		for _, name := range s.srv.Children(path) {
			add(path + "/" + name)
		}
		deletes = append(deletes, &zk.DeleteRequest{Path: path, Version: -1})
	}
	add(path)
	_, err := s.admin().Multi(deletes...)
	s.must(err)
}

func TestLimitsAndForeignNodes(t *testing.T) { runAll(t, limitScenarios) }

type refusal struct {
	op        string
	do        zktest.Action
	permanent bool
}

var limitScenarios = []scenario{
	{"17_auth_acl_needs_auth_and_has_it_after_a_reconnect", each(map[string]bool{
		"without": false, "with": true,
	}, func(s *scene, authenticated bool) {
		r := role{zk: []zknode.Option{zknode.WithACL(zk.AuthACL(zk.PermAll))}}
		if authenticated {
			r.zk = append(r.zk, zknode.WithAuth("digest", []byte("user:secret")))
		}
		p := s.join(r)
		if !authenticated {
			p.start(s.Context()).failed(0, zk.ErrInvalidACL)
			return
		}
		p.acquire().end()
		s.srv.Cut(p.session())
		p.acquire()
	})},

	{"18_refusals_are_permanent_or_retried_by_their_code", each(map[string]refusal{
		"quota exceeded":    {"create", fault.Refusal(wire.CodeQuotaExceeded), true},
		"throttled":         {"create", zktest.Throttled, false},
		"operation timeout": {"create", fault.Refusal(wire.CodeOperationTimeout), false},
		"bad arguments":     {"create", zktest.Error(zk.ErrBadArguments), true},
		"local session":     {"create", fault.Refusal(wire.CodeLocalSession), true},
	}, func(s *scene, r refusal) {
		p := s.join(role{})
		s.deleteAll(lockPath)
		f := p.arm(fault.Fault{Op: r.op, At: zktest.Request, Do: r.do, Times: 3})
		u := p.start(s.Context())
		if r.permanent {
			u.failed(time.Second)
		} else {
			u.granted(time.Second)
		}
		need.That(s, "nothing was refused", f.Struck() != 0)
	})},

	{"21_node_exists_on_create_means_exhausted", play(func(s *scene) {
		p := s.join(role{})
		f := p.arm(fault.Fault{Op: "create", At: zktest.Request, Do: zktest.Error(zk.ErrNodeExists)})
		p.start(s.Context()).failed(0, zknode.ErrSequenceExhausted)
		f.Lift()
		p.acquire()
	})},

	{"24_a_queue_of_thousands_is_read", play(func(s *scene) {
		p := s.join(role{})
		for i := range 3000 {
			s.foreign(fmt.Sprintf("_c_x-lock-%010d", 1<<20+i))
		}
		p.acquire().end()
		s.deleteAll(lockPath)
	})},
}

// foreign creates a child of the lock's directory through the connection of the operator.
func (s *scene) foreign(name string) {
	s.Helper()
	_, err := s.admin().Create(lockPath+"/"+name, nil, 0, zk.WorldACL(zk.PermAll))
	s.must(err)
}
