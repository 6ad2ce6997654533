package explore

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
)

var (
	all     = flag.Bool("all", false, "explore the scopes that take minutes as well")
	night   = flag.Bool("night", false, "explore the scopes that take hours as well")
	first   = flag.Bool("first", false, "one scope after another, the smallest first, up to the first violation; executions are not compared")
	most    = flag.Int("most", 0, "leave out the scopes of more executions; 0: none")
	samples = flag.Int("samples", 3, "random schedules of each scope, in which independent steps are executed in both orders")
)

// The search tries all orders of these scopes: with at most one fault, or up to a number of delays. The test compares the number of
// executions. If there are fewer than stated here, the search has become incomplete.
var scopes = []scopeOfTest{
	{"seam, three processes: one gives up, a session ends, or the budget", 0, 0, 1789, false,
		Scope{Seam: true, Processes: 3, Calls: []Call{Lock}, Cancel: true, Expire: true, Clock: budget}},
	{"seam, two processes: two locks, any fault but of the clock", 0, 0, 715, false,
		Scope{Seam: true, Processes: 2, Calls: []Call{Both}, Cancel: true, Expire: true, Close: true, Stop: true}},
	{"seam, one process: a guarded write, any fault", 0, 0, 3708, true,
		Scope{Seam: true, Processes: 1, Calls: []Call{Guarded, Lock}, Cancel: true, Expire: true, Close: true, Clock: budget}},
	{"seam, two processes: two goroutines each, one gives up, a session ends, or the budget", 0, 0, 120467, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Lock, Lock}, Cancel: true, Expire: true, Clock: budget}},
	{"seam, two processes: two goroutines each, one closes or shuts down", 0, 0, 47194, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Lock, Lock}, Close: true, Stop: true}},
	{"seam, two processes: rounds, two goroutines each, the budget ends", 0, 0, 40716, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Lock, Lock}, Rounds: true, Clock: budget}},
	{"seam, two processes: strict rounds, two goroutines each, one gives up, a session ends, or time passes", 0, 0, 20084, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Lock, Lock}, Strict: true, Rounds: true, Cancel: true, Expire: true, Clock: budget}},
	{"seam, two processes: one enters again and one tries, one closes", 0, 0, 51557, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Nested, Try}, Close: true}},
	{"seam, two processes: linger, twice, one closes, shuts down, or asks for it", 0, 0, 146481, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Lock}, Turns: 2, Linger: time.Second, Close: true, Stop: true, Ask: true}},
	{"seam, two processes: linger, twice, one gives up, a session ends, or time passes", 0, 0, 31781, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Lock}, Turns: 2, Linger: time.Second, Cancel: true, Expire: true, Clock: time.Second}},
	{"seam, two processes: one enters again and one tries, one gives up, or a session ends", 0, 0, 91688, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Nested, Try}, Cancel: true, Expire: true}},
	{"seam, two processes: a reader and a writer each, one closes", 0, 0, 248228, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Read, Write}, Close: true}},
	{"seam, two processes: a reader and a writer each, a session ends", 0, 0, 580459, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Read, Write}, Expire: true}},
	{"seam, one process: a writer between readers, one gives up, or a session ends", 0, 0, 16460, true,
		Scope{Seam: true, Processes: 1, Calls: []Call{Read, Write, Read}, Cancel: true, Expire: true}},
	{"seam, two processes: writers that become readers, the budget ends", 0, 0, 1730, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Downgrade}, Clock: budget}},
	{"seam, one process: one is asked to yield, any fault", 0, 0, 4372, true,
		Scope{Seam: true, Processes: 1, Calls: []Call{Yield, Lock}, Cancel: true, Expire: true, Close: true, Stop: true, Ask: true}},
	{"seam, two processes: one of two goroutines each is asked to yield", 0, 0, 91124, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Yield, Lock}}},
	{"seam, two processes: two candidates each, one gives up, or a session ends", 0, 0, 17450, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Lead, Lead}, Cancel: true, Expire: true}},
	{"seam, two processes: two candidates each, one closes or shuts down", 0, 0, 9406, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Lead, Lead}, Close: true, Stop: true}},
	{"seam, two processes: one and two permits each", 8, 0, 329338, true, Scope{Seam: true, Processes: 2, Calls: []Call{One, Two}}},
	{"seam, two processes: a limit of waiting, two goroutines each", 0, 0, 74958, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Lock, Lock}, MaxWait: time.Second, Clock: time.Second}},
	{"ZooKeeper, two processes", 2, 0, 80, false, Scope{ZooKeeper: true, Processes: 2, Calls: []Call{Lock}}},
	{"ZooKeeper, two processes: any fault", 2, 0, 3281, true,
		anyFault(Scope{ZooKeeper: true, Processes: 2, Calls: []Call{Lock}, Clock: lease / 4})},
	{"ZooKeeper, one process: a guarded write, any fault but of the clock", 2, 0, 1196, true,
		anyFault(Scope{ZooKeeper: true, Processes: 1, Calls: []Call{Guarded, Lock}})},
	{"ZooKeeper, one process: a guarded write, a connection breaks and a session ends", 3, 2, 4378, true,
		Scope{ZooKeeper: true, Processes: 1, Calls: []Call{Guarded}, Lost: true, Expire: true}},
	{"ZooKeeper, one process: three locks, in groups, one gives up, closes, shuts down, or is cut off", 2, 0, 2666, true,
		Scope{ZooKeeper: true, Processes: 1, Calls: []Call{Lock, Second, Third}, Cancel: true, Cut: true, Close: true, Stop: true}},
	// After these faults, all contenders look up their nodes or queue again. The scheduler decides the order in which they do so.
	{"ZooKeeper, one process: three locks, in groups, a connection breaks, or a session ends", 2, 0, 0, true,
		Scope{ZooKeeper: true, Processes: 1, Calls: []Call{Lock, Second, Third}, Lost: true, Expire: true}},
	{"ZooKeeper, two processes: three locks, in groups, a session ends", 1, 0, 0, true,
		Scope{ZooKeeper: true, Processes: 2, Calls: []Call{Lock, Second, Third}, Expire: true}},
	{"one process, two goroutines", 0, 0, 1788, false, Scope{Processes: 1, Calls: []Call{Lock, Lock}}},
	{"one process: in a function, one gives up", 0, 0, 21, false, Scope{Processes: 1, Calls: []Call{Do}, Cancel: true}},
	{"one process: at the path of a name", 0, 0, 10, false, Scope{Processes: 1, Calls: []Call{Named}}},
	{"seam, two processes: in a function, one gives up, or an operator removes one", 0, 0, 66, false,
		Scope{Seam: true, Processes: 2, Calls: []Call{Do}, Cancel: true, Remove: true}},
	{"seam, one process: apart from the hold", 0, 0, 20, false, Scope{Seam: true, Processes: 1, Calls: []Call{Apart, Lock}}},
	{"seam, one process: what cannot be", 0, 0, 1, false, Scope{Seam: true, Processes: 1, Calls: []Call{Wrong}}},
	{"seam, one process: permits, one gives up", 0, 0, 522, false, Scope{Seam: true, Processes: 1, Calls: []Call{One, Two}, Cancel: true}},
	{"seam, two processes: an operator removes one", 0, 0, 43, false, Scope{Seam: true, Processes: 2, Calls: []Call{Lock}, Remove: true}},
	{"one process: an operator removes it", 0, 0, 1616, true, Scope{Processes: 1, Calls: []Call{Lock}, Remove: true}},
	{"one process: permits, an operator removes them", 0, 0, 1616, true, Scope{Processes: 1, Calls: []Call{Two}, Remove: true}},
	{"two processes: an operator removes one", 3, 0, 679, true, Scope{Processes: 2, Calls: []Call{Lock}, Remove: true}},
	{"two processes", 0, 0, 3080, false, Scope{Processes: 2, Calls: []Call{Lock}}},
	{"two processes: try", 0, 0, 220, false, Scope{Processes: 2, Calls: []Call{Try}}},
	{"one process: it shuts down, and is cut off, two faults", 0, 2, 350, false,
		Scope{Processes: 1, Calls: []Call{Lock}, Stop: true, Cut: true}},
	{"two processes: a permit each", 0, 0, 600, false, Scope{Processes: 2, Calls: []Call{One}}},
	{"two processes: linger", 0, 0, 576, false, Scope{Processes: 2, Calls: []Call{Lock}, Linger: time.Second}},
	{"one process: two goroutines, a command is refused", 5, 0, 1143, false,
		Scope{Processes: 1, Calls: []Call{Lock, Lock}, Refuse: true}},
	{"one process: it is asked for", 0, 0, 1202, false, Scope{Processes: 1, Calls: []Call{Yield}, Ask: true}},
	{"one process: linger, it is asked for, or time passes", 4, 0, 1068, true,
		Scope{Processes: 1, Calls: []Call{Lock}, Turns: 2, Linger: time.Second, Ask: true, Clock: time.Second}},
	{"one process: lock and try", 0, 0, 2710, true, Scope{Processes: 1, Calls: []Call{Lock, Try}}},
	{"one process: strict", 0, 0, 2960, true, Scope{Processes: 1, Calls: []Call{Lock, Lock}, Strict: true}},
	{"two processes: entered again", 0, 0, 4992, true, Scope{Processes: 2, Calls: []Call{Nested}}},
	{"two processes: a candidate each", 0, 0, 3080, true, Scope{Processes: 2, Calls: []Call{Lead}}},
	{"two processes: readers", 0, 0, 9910, true, Scope{Processes: 2, Calls: []Call{Read}}},
	{"one process: a reader and a writer", 0, 0, 4748, true, Scope{Processes: 1, Calls: []Call{Read, Write}}},
	{"two processes: writers that become readers", 0, 0, 4992, true, Scope{Processes: 2, Calls: []Call{Downgrade}}},
	{"two processes: two permits each", 0, 0, 3080, true, Scope{Processes: 2, Calls: []Call{Two}}},
	{"two processes: one gives up", 0, 0, 47471, true, Scope{Processes: 2, Calls: []Call{Lock}, Cancel: true}},
	{"two processes: a message is lost", 0, 0, 61517, true, Scope{Processes: 2, Calls: []Call{Lock}, Lost: true}},
	{"two processes: one closes", 0, 0, 97215, true, Scope{Processes: 2, Calls: []Call{Lock}, Close: true}},
	{"two processes: one shuts down", 0, 0, 93863, true, Scope{Processes: 2, Calls: []Call{Lock}, Stop: true}},
	{"two processes: a session ends", 0, 0, 98098, true, Scope{Processes: 2, Calls: []Call{Lock}, Expire: true}},
	{"two processes: one is cut off", 0, 0, 116890, true, Scope{Processes: 2, Calls: []Call{Lock}, Cut: true}},
	{"two processes: a limit of waiting", 3, 0, 1426, true,
		Scope{Processes: 2, Calls: []Call{Lock}, MaxWait: time.Second, Clock: time.Second}},
	{"one process: the budget ends", 0, 0, 30328, true, Scope{Processes: 1, Calls: []Call{Lock, Lock}, Clock: 20 * time.Millisecond}},
	{"two processes: try, any fault but of the clock", 0, 0, 23550, true, anyFault(Scope{Processes: 2, Calls: []Call{Try}})},
	{"two processes: two locks", 4, 0, 3265, true, Scope{Processes: 2, Calls: []Call{Both}}},
	{"two processes: two locks, any fault but of the clock", 2, 0, 3162, true, anyFault(Scope{Processes: 2, Calls: []Call{Both}})},
	{"two processes: two locks, a session ends", 3, 0, 4095, true, Scope{Processes: 2, Calls: []Call{Both}, Expire: true}},
	{"two processes: writers that become readers, the budget ends", 4, 0, 3636, true,
		Scope{Processes: 2, Calls: []Call{Downgrade}, Clock: 20 * time.Millisecond}},
	{"two processes: two goroutines each", 3, 0, 1154, true, Scope{Processes: 2, Calls: []Call{Lock, Lock}}},
	{"two processes: two goroutines each, any fault but of the clock", 2, 0, 2823, true,
		anyFault(Scope{Processes: 2, Calls: []Call{Lock, Lock}})},
	{"two processes: two goroutines each, any two faults but of the clock", 3, 2, 174570, true,
		anyFault(Scope{Processes: 2, Calls: []Call{Lock, Lock}})},
	{"two processes: a reader and a writer each", 3, 0, 8263, true, Scope{Processes: 2, Calls: []Call{Read, Write}}},
	{"two processes: a reader and a writer each, a session ends", 2, 0, 2301, true,
		Scope{Processes: 2, Calls: []Call{Read, Write}, Expire: true}},
	{"two processes: a reader and a writer each, any fault but of the clock", 2, 0, 9606, true,
		anyFault(Scope{Processes: 2, Calls: []Call{Read, Write}})},
	{"one process: a writer between readers", 4, 0, 4358, true, Scope{Processes: 1, Calls: []Call{Read, Write, Read}}},
	{"two processes: one and two permits each", 2, 0, 1450, true, Scope{Processes: 2, Calls: []Call{One, Two}}},
	{"two processes: one and two permits each, a session ends", 2, 0, 3478, true, Scope{Processes: 2, Calls: []Call{One, Two}, Expire: true}},
	{"two processes: a permit each, any fault but of the clock", 0, 0, 70209, true, anyFault(Scope{Processes: 2, Calls: []Call{One}})},
	{"two processes: one and two permits each, any fault but of the clock", 2, 0, 14704, true,
		anyFault(Scope{Processes: 2, Calls: []Call{One, Two}})},
	{"two processes: linger, any fault but of the clock", 0, 0, 132615, true,
		anyFault(Scope{Processes: 2, Calls: []Call{Lock}, Linger: time.Second})},
	{"one process: a command is late", 0, 0, 27, false, Scope{Processes: 1, Calls: []Call{Lock}, Late: true}},
	{"one process: its lease ends, or renewals are refused", 2, 0, 17, false, Scope{Processes: 1, Calls: []Call{Lock}, Renew: true}},
	{"two processes: the lease of one ends, or renewals are refused", 2, 0, 771, true, Scope{Processes: 2, Calls: []Call{Lock}, Renew: true}},
	{"one process: its lease ends after a time, two faults", 2, 2, 114, false,
		Scope{Processes: 1, Calls: []Call{Lock}, Renew: true, Clock: lease / 8}},
	{"three processes: two permits, one gives up", 2, 0, 692, false, Scope{Processes: 3, Calls: []Call{Two}, Cancel: true}},
	{"one process: a guarded write", 1, 0, 15, false, Scope{Processes: 1, Calls: []Call{Guarded, Lock, Lock}}},
	{"one process: strict, twice, a command is refused", 3, 0, 4539, true,
		Scope{Processes: 1, Calls: []Call{Lock, Lock}, Turns: 2, Strict: true, Refuse: true}},
	{"one process: strict, a command is executed and refused", 2, 0, 117, false,
		Scope{Processes: 1, Calls: []Call{Lock, Lock}, Strict: true, Partly: true}},
	{"two processes: a writer becomes a reader, the budget ends, and a command is executed and refused", 2, 2, 675, false,
		Scope{Processes: 2, Calls: []Call{Downgrade}, Others: []Call{Read}, Partly: true, Clock: budget}},
	{"ZooKeeper, two processes: a writer becomes a reader before a reader, the budget ends", 1, 0, 49, false,
		Scope{ZooKeeper: true, Processes: 2, Calls: []Call{Downgrade}, Others: []Call{Read}, Clock: budget}},
	{"seam, one process: two goroutines, a day ends", 0, 0, 80, false,
		Scope{Seam: true, Processes: 1, Calls: []Call{Lock, Lock}, Clock: endless + time.Hour, Traced: true}},
	{"one process: two messages are lost", 2, 2, 68, false, Scope{Processes: 1, Calls: []Call{Lock}, Lost: true}},
	{"one process: one and two permits, one gives up", 3, 0, 2358, true, Scope{Processes: 1, Calls: []Call{One, Two}, Cancel: true}},
	{"one process: two permits, then one by one, a command is refused, and time passes, two faults", 2, 2, 2743, true,
		Scope{Processes: 1, Calls: []Call{Two, One, One}, Refuse: true, Clock: lease}},
	{"one process: permits one by one", 2, 0, 1153, true, Scope{Processes: 1, Calls: []Call{One, One, One}}},
	{"two processes: two and one permits, and one, their budgets end", 2, 0, 3031, true,
		Scope{Processes: 2, Calls: []Call{Two, One}, Others: []Call{One}, Clock: Scope{}.longest()}},
	{"seam, two processes: a writer becomes a reader before a reader, the budget ends", 0, 0, 397, false,
		Scope{Seam: true, Processes: 2, Calls: []Call{Downgrade}, Others: []Call{Read}, Clock: budget}},
	{"seam, two processes: two goroutines and one", 0, 0, 76, false,
		Scope{Seam: true, Processes: 2, Calls: []Call{Lock, Lock}, Others: []Call{Lock}}},
	{"one process: try, the store grants nothing for a while", 0, 0, 72, false, Scope{Processes: 1, Calls: []Call{Try}, Anew: true}},
	{"one process: the store grants nothing for a while", 2, 0, 100, false, Scope{Processes: 1, Calls: []Call{Lock, Lock}, Anew: true}},
	{"one process: the store grants nothing for a while, and it gives up, two faults", 2, 2, 66, false,
		Scope{Processes: 1, Calls: []Call{Lock}, Anew: true, Cancel: true}},
	{"one process: its notifications stop", 0, 0, 44, false, Scope{Processes: 1, Calls: []Call{Lock}, Deaf: true}},
	{"one process: before there is a session, it is asked for", 2, 0, 59, false,
		Scope{Processes: 1, Calls: []Call{Lock}, Early: true, Ask: true}},
	{"two processes: before there are sessions, one gives up, closes, or shuts down", 2, 0, 719, false,
		Scope{Processes: 2, Calls: []Call{Lock}, Early: true, Cancel: true, Close: true, Stop: true}},
	{"ZooKeeper, two processes: over connections made elsewhere, a session ends", 1, 0, 51, false,
		Scope{ZooKeeper: true, Attached: true, Processes: 2, Calls: []Call{Lock}, Expire: true}},
	{"one process: answers to renewals are slow, and its lease ends after a time, two faults", 2, 2, 134, false,
		Scope{Processes: 1, Calls: []Call{Lock}, Slow: time.Second, Renew: true, Clock: lease / 2}},
	{"one process: a guarded write, a message is lost", 2, 0, 225, false, Scope{Processes: 1, Calls: []Call{Guarded, Lock}, Lost: true}},
	{"one process: three permits, then one by one, a message is lost", 1, 0, 72, false,
		Scope{Processes: 1, Calls: []Call{Three, One, One, One}, Permits: 3, Lost: true}},
	{"two processes: answers to renewals are slow, notifications of one stop, and time passes, two faults", 2, 2, 1651, true,
		Scope{Processes: 2, Calls: []Call{Lock}, Slow: time.Second, Deaf: true, Clock: lease}},
	{"one process: a writer lets readers in", 0, 0, 10, false, Scope{Processes: 1, Calls: []Call{Open}}},
	{"two processes: a writer lets a reader in, a session ends", 2, 0, 472, false,
		Scope{Processes: 2, Calls: []Call{Open}, Others: []Call{Read}, Expire: true}},
	{"one process: its lease ends, an operator removes it, and time passes, three faults", 3, 3, 1970, true,
		Scope{Processes: 1, Calls: []Call{Lock}, Renew: true, Remove: true, Clock: lease / 4}},
	{"ZooKeeper, one process: an operator removes its node, and time passes, two faults", 2, 2, 381, false,
		Scope{ZooKeeper: true, Processes: 1, Calls: []Call{Lock}, Remove: true, Clock: lease / 4}},
	{"one process: try, it closes or shuts down", 0, 0, 73, false,
		Scope{Processes: 1, Calls: []Call{Try}, Close: true, Stop: true}},
	{"two processes: one gives up, nearly in order", 2, 0, 150, false,
		Scope{Processes: 2, Calls: []Call{Lock}, Cancel: true}},
	{"seam, two processes: rounds, two goroutines and one, the budget ends", 0, 0, 1490, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Lock, Lock}, Others: []Call{Lock}, Rounds: true, Clock: budget}},
	{"two processes: linger, twice, a session ends", 3, 0, 8902, true,
		Scope{Processes: 2, Calls: []Call{Lock}, Turns: 2, Linger: time.Second, Expire: true}},
}

// The scopes in nightly take too long for every run. Most of them state no number of executions.
var nightly = []scopeOfTest{
	{"two processes: any fault", 0, 0, 0, true, anyFault(Scope{Processes: 2, Calls: []Call{Lock}})},
	{"two processes: entered again, any fault", 0, 0, 0, true, anyFault(Scope{Processes: 2, Calls: []Call{Nested}})},
	{"two processes: readers, any fault", 0, 0, 0, true, anyFault(Scope{Processes: 2, Calls: []Call{Read}})},
	{"two processes: writers that become readers, any fault", 0, 0, 0, true, anyFault(Scope{Processes: 2, Calls: []Call{Downgrade}})},
	{"two processes: two permits each, any fault", 0, 0, 0, true, anyFault(Scope{Processes: 2, Calls: []Call{Two}})},
	{"two processes: a guarded write each, any fault", 0, 0, 0, true, anyFault(Scope{Processes: 2, Calls: []Call{Guarded}})},
	{"two processes: told that it is wanted, any fault", 0, 0, 0, true, anyFault(Scope{Processes: 2, Calls: []Call{Yield}, Ask: true})},
	{"two processes: two goroutines each, any two faults but of the clock", 4, 2, 1547872, true,
		anyFault(Scope{Processes: 2, Calls: []Call{Lock, Lock}})},
	{"two processes: a reader and a writer each, any two faults", 4, 2, 0, true, anyFault(Scope{Processes: 2, Calls: []Call{Read, Write}})},
	{"two processes: one and two permits each, any two faults", 4, 2, 0, true, anyFault(Scope{Processes: 2, Calls: []Call{One, Two}})},
	{"seam, two processes: a reader and a writer each, any fault", 0, 0, 0, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Read, Write}, Cancel: true, Expire: true, Close: true, Stop: true, Clock: budget}},
	{"seam, two processes: one and two permits each, in any order", 0, 0, 0, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{One, Two}}},
	{"seam, two processes: one and two permits each, a session ends", 8, 0, 4763807, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{One, Two}, Expire: true}},
	{"ZooKeeper, two processes: two goroutines each, any fault but of the clock", 2, 0, 0, true,
		anyFault(Scope{ZooKeeper: true, Processes: 2, Calls: []Call{Lock, Lock}})},
	{"ZooKeeper, two processes: two permits each, any fault but of the clock", 2, 0, 0, true,
		anyFault(Scope{ZooKeeper: true, Processes: 2, Calls: []Call{Two}})},
	{"ZooKeeper, two processes: any two faults", 4, 2, 0, true,
		anyFault(Scope{ZooKeeper: true, Processes: 2, Calls: []Call{Lock}, Clock: lease / 4})},
	{"seam, two processes: one and two permits each, any two faults", 0, 2, 0, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{One, Two}, Cancel: true, Expire: true, Close: true, Stop: true}},
	{"seam, two processes: two goroutines each, any two faults", 0, 2, 0, true,
		Scope{Seam: true, Processes: 2, Calls: []Call{Lock, Lock}, Cancel: true, Expire: true, Close: true, Stop: true, Clock: budget}},
}

type scopeOfTest struct {
	name       string
	delays     int // limit of the delays; 0: no limit
	faults     int // limit of the faults; 0 means 1
	executions int // expected number of executions; 0: not checked, because it is not known or not always the same
	long       bool
	scope      Scope
}

// anyFault adds all faults of the scope's store, except the passing of time.
func anyFault(s Scope) Scope {
	s.Lost, s.Cancel, s.Expire, s.Cut, s.Close, s.Stop = true, true, true, true, true, true
	return s
}

func TestScopes(t *testing.T) {
	var run, complete, violations atomic.Int32
	t.Cleanup(func() {
		fmt.Printf("explore: %d scopes, %d complete, %d violations\n", run.Load(), complete.Load(), violations.Load())
	})
	if *night {
		scopes = append(scopes, nightly...)
	}
	if *first {
		slices.SortStableFunc(scopes, func(a, b scopeOfTest) int { return a.executions - b.executions })
	}
	for _, s := range scopes {
		if s.long && !*all || *most > 0 && s.executions > *most || *first && t.Failed() {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if !*first {
				t.Parallel()
			}
			run.Add(1)
			search := Search{Begin: s.scope.Begin, Faults: cmp.Or(s.faults, 1), Delays: cmp.Or(s.delays, -1)}
			r := search.Run(t)
			extent := "complete"
			if r.Bounded {
				steps := "1 step"
				if s.delays != 1 {
					steps = fmt.Sprint(s.delays, " steps")
				}
				extent = "bounded: at most " + steps + " out of order"
			} else {
				complete.Add(1)
			}
			fmt.Printf("%s: %d executions, %s\n", s.name, r.Executions, extent)
			if r.Violation != nil {
				violations.Add(1)
				t.Error(r.Violation.Test(written(s.scope)))
			}
			strayed := s.executions / 10_000 // on a busy machine, a few of very many executions take another order
			need.That(t, fmt.Sprintf("%d executions, %d", r.Executions, s.executions),
				s.executions == 0 || max(r.Executions-s.executions, s.executions-r.Executions) <= strayed || *first)
		})
	}
}

// written returns the Go source of the scope, without its closing brace, for use in a test.
func written(s Scope) string {
	var fields []string
	v := reflect.ValueOf(s)
	for i, f := range reflect.VisibleFields(v.Type()) {
		if f.IsExported() && !v.Field(i).IsZero() {
			fields = append(fields, fmt.Sprintf("%s: %#v", f.Name, v.Field(i).Interface()))
		}
	}
	return strings.ReplaceAll("Scope{"+strings.Join(fields, ", ")+"}.Begin", "explore.", "")
}

// The reduced search leaves out orders. It must still find every outcome that the full search finds.
func TestReducedSearchFindsAllOutcomes(t *testing.T) {
	type bound struct {
		delays, faults int
		scope          Scope
	}
	small := []bound{
		{-1, 1, Scope{Processes: 1, Calls: []Call{Lock}, Lost: true}},
		{-1, 1, Scope{Processes: 1, Calls: []Call{Lock}, Cancel: true, Expire: true}},
		{-1, 1, Scope{Processes: 1, Calls: []Call{Lock}, Cut: true}},
		{-1, 1, Scope{Processes: 1, Calls: []Call{Lock}, Close: true, Stop: true}},
		{-1, 1, Scope{Processes: 1, Calls: []Call{Try, Try}}},
		{-1, 1, Scope{Processes: 1, Calls: []Call{Lock}, Late: true, Partly: true}},
		{-1, 1, Scope{Seam: true, Processes: 2, Calls: []Call{Downgrade}, Others: []Call{Read}}},
		{-1, 1, Scope{Seam: true, Processes: 2, Calls: []Call{Lock}, Cancel: true, Expire: true, Close: true, Stop: true}},
		{-1, 1, Scope{Seam: true, Processes: 1, Calls: []Call{Lock, Guarded}}},
		{-1, 1, Scope{Seam: true, Processes: 2, Calls: []Call{One}, Expire: true}},
		{-1, 1, Scope{Processes: 1, Calls: []Call{Try}, Early: true, Cancel: true}},
		{-1, 1, Scope{Processes: 1, Calls: []Call{Open}, Expire: true}},
		{2, 2, Scope{Processes: 2, Calls: []Call{Lock}, Cancel: true, Expire: true}},
		{2, 1, Scope{Processes: 1, Calls: []Call{Read, Write}, Lost: true, Close: true}},
		{2, 2, Scope{Seam: true, Processes: 2, Calls: []Call{One, Two}, Cancel: true, Expire: true, Close: true}},
		{1, 1, anyFault(Scope{ZooKeeper: true, Processes: 2, Calls: []Call{Lock}})},
	}
	if *all {
		small = append(small, bound{-1, 1, Scope{Processes: 2, Calls: []Call{Try}}})
	}
	for _, b := range small {
		t.Run(written(b.scope), func(t *testing.T) {
			t.Parallel()
			search := Search{Begin: b.scope.Begin, Faults: b.faults, Delays: b.delays}
			reduced := search.Run(t)
			search.Full = true
			full := search.Run(t)
			t.Logf("%d executions, reduced %d; %d outcomes", full.Executions, reduced.Executions, len(full.Outcomes))
			if full.Violation != nil {
				t.Error(full.Violation.Test(written(b.scope)))
			}
			for o := range full.Outcomes {
				need.That(t, "the reduced search does not find\n"+o, reduced.Outcomes[o])
			}
			for o := range reduced.Outcomes {
				need.That(t, "only the reduced search finds\n"+o, full.Outcomes[o])
			}
		})
	}
}

// Steps that count as independent lead to the same state in either order.
func TestIndependentStepsCommute(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	pairs := 0
	for _, scope := range []Scope{
		{
			Processes: 2, Calls: []Call{Lock, Try}, Turns: 2,
			Lost: true, Cancel: true, Expire: true, Cut: true, Close: true, Stop: true, Clock: time.Second,
		},
		{Processes: 2, Calls: []Call{Read, Downgrade}, Cancel: true, Expire: true, Close: true, Stop: true, Clock: 30 * time.Millisecond},
		{Processes: 2, Calls: []Call{One, Two}, Lost: true, Expire: true, Close: true, Stop: true},
		{Processes: 2, Calls: []Call{Both}, Linger: time.Second, Strict: true, Expire: true, Close: true, Stop: true},
		{Processes: 2, Calls: []Call{Guarded, Yield}, Lost: true, Expire: true, Ask: true},
		{Processes: 2, Calls: []Call{Downgrade}, Others: []Call{Read}, Refuse: true, Partly: true, Late: true, Clock: budget},
		{Processes: 2, Calls: []Call{Lock, Try}, Late: true, Renew: true, Deaf: true, Anew: true},
		{
			Processes: 2, Calls: []Call{Lock, Nested}, Early: true, Slow: time.Second,
			Deaf: true, Ask: true, Cancel: true, Close: true, Clock: lease,
		},
		{Processes: 2, Calls: []Call{Open, Read}, Expire: true, Remove: true, Close: true},
		{
			Seam: true, Processes: 2, Calls: []Call{Lock, Nested, Guarded, Yield}, Linger: time.Second,
			Cancel: true, Expire: true, Close: true, Stop: true, Ask: true, Clock: budget,
		},
		{Seam: true, Processes: 2, Calls: []Call{Read, Downgrade}, Cancel: true, Expire: true, Close: true, Clock: 30 * time.Millisecond},
		{Seam: true, Processes: 2, Calls: []Call{One, Two}, Cancel: true, Expire: true, Close: true, Stop: true},
		{Seam: true, Processes: 3, Calls: []Call{Lock, Lock}, Others: []Call{Lock}, Cancel: true, Expire: true, Stop: true},
		{Seam: true, Processes: 2, Calls: []Call{Lead, Lock}, Cancel: true, Expire: true, Close: true, Stop: true},
		{Seam: true, Processes: 2, Calls: []Call{Both, Try}, Turns: 2, Cancel: true, Expire: true, Close: true},
		{ZooKeeper: true, Processes: 2, Calls: []Call{Lock}, Lost: true, Cancel: true, Expire: true, Close: true, Stop: true},
		{ZooKeeper: true, Attached: true, Processes: 2, Calls: []Call{Lock}, Expire: true},
	} {
		if scope.Attached && raceDetector { // the race detector reports a field that the client library reads while it connects again
			continue
		}
		for range *samples {
			var schedule []string
			steps, _ := take(t, scope, schedule)
			for faults := 0; len(steps) > 0 && random.IntN(40) > 0; steps, _ = take(t, scope, schedule) {
				if faults > 0 {
					steps = slices.DeleteFunc(steps, func(x Step) bool { return x.Fault })
				}
				if len(steps) == 0 {
					break
				}
				x := steps[random.IntN(len(steps))]
				if x.Fault && random.IntN(4) > 0 {
					continue
				}
				if x.Fault {
					faults++
				}
				for _, y := range steps {
					if !x.independent(y) {
						continue
					}
					pairs++
					for strays := 0; ; strays++ {
						one, after := take(t, scope, append(slices.Clone(schedule), x.Name, y.Name))
						two, before := take(t, scope, append(slices.Clone(schedule), y.Name, x.Name))
						if after == before && slices.Equal(sorted(one), sorted(two)) {
							break
						}
						if strays == maxStrays {
							t.Fatalf("seed %d, %s: after %q, %q and %q do not commute:\n%s%q\nand\n%s%q", seed, written(scope), schedule,
								x.Name, y.Name, after, sorted(one), before, sorted(two))
						}
					}
				}
				schedule = append(schedule, x.Name)
			}
		}
	}
	t.Logf("%d pairs, seed %d", pairs, seed)
}

// If a caller gives up at the moment when it gets its permits, its error must not name its own process as the one that blocks it.
func TestShutdownAsPermitsCome(t *testing.T) {
	need.OK(t, Replay(t, anyFault(Scope{Processes: 2, Calls: []Call{One, Two}}).Begin,
		"p1.g1 begins", "p1 enter 1.2 is executed", "p1 answer to enter 1.2 arrives",
		"p1 news of 1.2: known true, has true, behind false arrives", "p1.g2 begins", "p2.g2 begins", "p2 enter 2.2 is executed",
		"p1 news of 1.2: known true, has true, behind true arrives", "p2 answer to enter 2.2 arrives",
		"p2 news of 2.2: known true, has false, behind false arrives", "p1 enter 1.3 is executed", "p1 answer to enter 1.3 arrives",
		"p1 news of 1.2: known true, has true, behind true #2 arrives", "p1 news of 1.3: known true, has false, behind false arrives",
		"p2 news of 2.2: known true, has false, behind true arrives", "p2.g1 begins", "p1.g1 releases", "p1 leave 1.2 is executed",
		"p1 answer to leave 1.2 arrives", "p1 news of 1.2: known false, has false, behind false arrives",
		"p1 news of 1.3: known true, has false, behind false #2 arrives",
		"p2 shuts down"))
}

// A process that was first in the queue for permits loses its place with its session. If a caller of it then gives up, the error must not
// say that the process is first.
func TestWhoHasLostItsPlaceIsNotFirst(t *testing.T) {
	need.OK(t, Replay(t, Scope{Processes: 2, Calls: []Call{One, Two}, Seam: true, Cancel: true, Expire: true}.Begin,
		"p1.g1 begins", "p1 enter p1permits of /lock.1 is executed", "p1.g2 begins", "p1 enter p1permits of /lock.2 is executed",
		"p2.g1 begins", "p2 enter p2permits of /lock.1 is executed", "p2.g2 begins", "p1.g1 releases",
		"p1 give [p1permits of /lock.1] is executed", "p1 news of p1permits of /lock.2: 2 are free arrives", "the session of p1 ends",
		"p1 take p1permits of /lock.2 is executed", "p1 enter p1permits of /lock.3 is executed",
		"p2 news of p2permits of /lock.1: 2 are free arrives", "p1.g2 gives up"))
}

// Before a process asks holders for the lock, it waits for a session, but not longer than a store may take to open one.
func TestWhoGetsNoSessionAsksWithoutOne(t *testing.T) {
	begin := Scope{Processes: 1, Calls: []Call{Lock}, Early: true, Ask: true, Clock: lease}.Begin
	need.OK(t, Replay(t, begin, "p1.g1 begins", "p1 asks for it", "9s pass"))
	need.OK(t, Replay(t, begin, "p1.g1 begins", "p1 asks for it", "9s pass", "p1 ask  is executed"))
}

// If the same steps are taken again, they lead to the same state. That includes a process that closes with several contenders in the queue.
func TestStepsAreRepeatable(t *testing.T) {
	scope := Scope{Processes: 2, Calls: []Call{One, Two}, Close: true}
	schedule := []string{
		"p1.g2 begins", "p2.g1 begins", "p2 enter 2.2 is executed", "p2 answer to enter 2.2 arrives", "p2.g2 begins",
		"p1 enter 1.2 is executed", "p2 enter 2.3 is executed", "p2 answer to enter 2.3 arrives", "p2 closes",
	}
	steps, state := take(t, scope, schedule)
	need.Must(t, "a step was not possible", len(steps) > 0)
	for range 20 {
		if again, after := take(t, scope, schedule); after != state || !slices.Equal(sorted(again), sorted(steps)) {
			t.Fatalf("one time\n%s%q\nand another\n%s%q", state, sorted(steps), after, sorted(again))
		}
	}
}

// A pair is a world with two independent steps. It reports an error if it ends before both steps were taken.
type pair struct{ left []string }

func (p *pair) Steps(func(i, j int) bool) (steps []Step) {
	for _, name := range p.left {
		steps = append(steps, Step{Name: name, Touches: []string{name}, Take: func() {
			p.left = slices.DeleteFunc(slices.Clone(p.left), func(x string) bool { return x == name })
		}})
	}
	return steps
}

func (p *pair) State() string { return "" }

func (p *pair) End() (outcome string, wrong error) {
	if len(p.left) > 0 {
		wrong = fmt.Errorf("%q are left", p.left)
	}
	return "", wrong
}

// An order that reaches a known state ends there without a verdict, because what follows was already tried. Such an execution must not be
// used to reproduce a violation.
func TestAPointIsLeftWhereItWasReachedBefore(t *testing.T) {
	begin := func(*testing.T) World { return &pair{[]string{"a", "b"}} }
	r := Search{Begin: begin, Delays: 1}.Run(t)
	need.Equal(t, "violations", r.Violation, nil)
	need.Equal(t, "executions, and pruned executions", [2]int{r.Executions, r.Pruned}, [2]int{2, 1})
}

// A moody world is a world whose second step differs from one execution to the next.
type moody struct {
	pair
	others []string
}

func (m *moody) Steps(before func(i, j int) bool) []Step {
	if len(m.left) == 2 && m.others != nil {
		m.left, m.others = m.others, nil
	}
	return m.pair.Steps(before)
}

// Events at the same instant may come in another order when an execution is repeated. That is no violation, unless no repetition ever takes
// the same course.
func TestAnExecutionThatStraysIsRepeated(t *testing.T) {
	for _, test := range []struct {
		when       string
		others     func(execution int) []string
		executions int
		violation  bool
	}{
		{"never", func(int) []string { return nil }, 6, false},
		{"now and then", func(i int) []string { return map[int][]string{2: {"y", "z"}, 5: {"y", "z"}}[i] }, 6, false},
		{"where nobody had been", func(i int) []string { return map[int][]string{1: {"y", "z"}}[i] }, 7, false},
		{"always", func(i int) []string { return []string{fmt.Sprint("y", i), fmt.Sprint("z", i)} }, 0, true},
	} {
		begun := 0
		r := Search{Full: true, Delays: -1, Begin: func(*testing.T) World {
			begun++
			return &moody{pair{[]string{"a", "b", "c"}}, test.others(begun)}
		}}.Run(t)
		if (r.Violation != nil) != test.violation || !test.violation && r.Executions != test.executions {
			t.Errorf("off %s: %d executions of %d, %v", test.when, r.Executions, begun, r.Violation)
		}
	}
}

// The function take takes the steps of a schedule. It returns the possible next steps and the state. It returns nothing if one of the steps
// was impossible, which happens because retries come at random times.
func take(t *testing.T, scope Scope, schedule []string) (steps []Step, state string) {
	synctest.Test(t, func(t *testing.T) {
		w := scope.Begin(t)
		always := func(i, j int) bool { return true }
		for i := 0; ; i++ {
			synctest.Wait()
			if steps = w.Steps(always); i == len(schedule) {
				break
			}
			at := slices.Index(names(steps), schedule[i])
			if at < 0 {
				steps, schedule = nil, schedule[:i]
				break
			}
			steps[at].Take()
		}
		if steps != nil {
			state = w.State()
		}
		need.WantErr(t, fmt.Sprintf("the end of %q", schedule), need.ErrOf(w.End()), nil)
	})
	return steps, state
}

func sorted(steps []Step) []string { return slices.Sorted(slices.Values(names(steps))) }

// A liar is a store that has a defect. A test chooses the defect to see whether a check finds it.
type liar struct {
	queue.Store
	do func(there queue.Store, ctx context.Context, c queue.Command) queue.Answer
}

func (l liar) Do(ctx context.Context, c queue.Command) queue.Answer { return l.do(l.Store, ctx, c) }

// The function wrong returns a defect that changes the answers of a store.
func wrong(change func(c queue.Command, a *queue.Answer)) func(queue.Store) queue.Store {
	return func(there queue.Store) queue.Store {
		return liar{there, func(there queue.Store, ctx context.Context, c queue.Command) queue.Answer {
			a := there.Do(ctx, c)
			change(c, &a)
			return a
		}}
	}
}

// Each check finds the defect for which it was written. For most of these defects, no other check would find it.
func TestJudgesFind(t *testing.T) {
	for _, f := range []struct {
		judge string
		scope Scope
		alone bool
	}{
		{"exclusion", Scope{Processes: 2, Calls: []Call{Lock}, seed: seed{store: wrong(func(c queue.Command, a *queue.Answer) {
			a.View.Has = a.View.Has || c.Op == queue.Enter && a.Outcome == queue.Done
		})}}, true},
		{"lost", Scope{Processes: 1, Calls: []Call{Lock}, seed: seed{remove: 1}}, true},
		{"order", Scope{Processes: 3, Calls: []Call{Lock}, seed: seed{remove: 2}}, true},
		{"waits", Scope{Processes: 2, Calls: []Call{Lock}, seed: seed{mute: true, store: wrong(func(_ queue.Command, a *queue.Answer) {
			a.Views = nil
		})}}, true},
		{"left", Scope{Processes: 1, Calls: []Call{Lock}, seed: seed{store: func(there queue.Store) queue.Store {
			return liar{there, func(there queue.Store, ctx context.Context, c queue.Command) queue.Answer {
				if c.Op == queue.Leave {
					return queue.Answer{Outcome: queue.Done}
				}
				return there.Do(ctx, c)
			}}
		}}}, true},
		{"tokens", Scope{Processes: 1, Calls: []Call{Lock, Lock}, Strict: true, seed: seed{
			mute: true, store: wrong(func(_ queue.Command, a *queue.Answer) {
				a.View.Token = 1000 - a.View.Token
				for i := range a.Views {
					a.Views[i].Token = 1000 - a.Views[i].Token
				}
			}),
		}}, true},
		{"left", Scope{Processes: 1, Calls: []Call{Lock}, seed: seed{keeps: true}}, true},
		{"left", Scope{Processes: 1, Calls: []Call{Two, One, One}, seed: seed{store: func(there queue.Store) queue.Store {
			return liar{there, func(there queue.Store, ctx context.Context, c queue.Command) queue.Answer {
				if c.Op == queue.Weigh {
					c.Weight++
				}
				return there.Do(ctx, c)
			}}
		}}}, true},
		{"context", Scope{Processes: 2, Calls: []Call{Lock}, Cancel: true, seed: seed{deaf: true}}, true},
		{"context", Scope{Processes: 1, Calls: []Call{Lock}, seed: seed{loose: true}}, true},
		{"told", Scope{Processes: 1, Calls: []Call{Lock}, Expire: true, seed: seed{quiet: true}}, true},
		{"known", Scope{Processes: 2, Calls: []Call{Lock}, Cut: true, seed: seed{store: wrong(func(_ queue.Command, a *queue.Answer) {
			a.TTL *= 2
		})}}, false},
		{"fails", Scope{Processes: 1, Calls: []Call{Lock}, seed: seed{store: wrong(func(c queue.Command, a *queue.Answer) {
			if c.Op == queue.Enter {
				*a = queue.Answer{Outcome: queue.Denied, Err: errors.New("no")}
			}
		})}}, false},
		{"budget", Scope{Seam: true, Processes: 2, Calls: []Call{Lock, Lock}, Clock: budget, seed: seed{late: budget}}, true},
		{"writes", Scope{Seam: true, Processes: 1, Calls: []Call{Guarded, Lock}, seed: seed{hasty: true}}, true},
		{"told", Scope{Seam: true, Processes: 1, Calls: []Call{Lock}, seed: seed{silent: true}}, true},
		{"words", Scope{Seam: true, Processes: 1, Calls: []Call{Lock}, Cancel: true, seed: seed{terse: true}}, true},
		{"lost", Scope{Processes: 1, Calls: []Call{Lock}, Renew: true, seed: seed{renews: true}}, true},
		{"told", Scope{Seam: true, Processes: 1, Calls: []Call{Lock, Lock}, Clock: long, seed: seed{quiet: true}}, true},
		{"budget", Scope{Seam: true, Processes: 2, Calls: []Call{Lock, Lock}, seed: seed{blind: true}}, true},
		{"budget", Scope{Processes: 2, Calls: []Call{Lock}, Slow: time.Second, Clock: lease, seed: seed{
			mute: true, store: wrong(func(c queue.Command, a *queue.Answer) {
				for i := range a.Views {
					a.Views[i].Behind = false
				}
			}),
		}}, true},
		{"order", Scope{Processes: 1, Calls: []Call{Lock}, seed: seed{store: func(there queue.Store) queue.Store {
			return liar{there, func(there queue.Store, ctx context.Context, c queue.Command) queue.Answer {
				if c.Op == queue.Open {
					return queue.Answer{Outcome: queue.Done, Name: "1/0", TTL: lease}
				}
				return there.Do(ctx, c)
			}}
		}}}, false},
		{"context", Scope{Processes: 1, Calls: []Call{Open}, seed: seed{opens: true}}, true},
		{"fails", Scope{Processes: 1, Calls: []Call{Try}, Close: true, seed: seed{store: wrong(func(c queue.Command, a *queue.Answer) {
			if c.Op == queue.Try && a.Outcome == queue.Unknown {
				*a = queue.Answer{Outcome: queue.Denied, Err: errors.New("no")}
			}
		})}}, true},
		{"znodes", Scope{ZooKeeper: true, Processes: 1, Calls: []Call{Lock}, seed: seed{remove: 1}}, false},
		{"words", Scope{Processes: 2, Calls: []Call{Lock}, Cancel: true, seed: seed{store: wrong(func(_ queue.Command, a *queue.Answer) {
			a.View.Ahead, a.View.Nearest = 0, second.Contender{}
		})}}, true},
	} {
		t.Run(f.judge, func(t *testing.T) {
			search := Search{Begin: f.scope.Begin, Faults: 1, Delays: 2}
			r := search.Run(t)
			need.Must(t, fmt.Sprintf("got %v in %d executions, want it to be found by %s", r.Violation, r.Executions, f.judge),
				r.Violation != nil && strings.HasPrefix(r.Violation.Wrong.Error(), f.judge+": "))
			t.Logf("%d executions: %v, %d steps", r.Executions, r.Violation.Wrong, len(r.Violation.Schedule))
			err := Replay(t, f.scope.Begin, r.Violation.Schedule...)
			need.That(t, fmt.Sprintf("the same steps again: %v", err), err != nil && err.Error() == r.Violation.Wrong.Error())
			if !*all {
				return
			}
			f.scope.ignore = f.judge
			search.Begin = f.scope.Begin
			if r := search.Run(t); f.alone != (r.Violation == nil) {
				t.Errorf("without it: %v", r.Violation)
			} else if r.Violation != nil {
				t.Logf("without it: %v", r.Violation.Wrong)
			}
		})
	}
}
