package redislock

import (
	"fmt"
	"strconv"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// An answer is what Redis says of a contender, on request or by a message.
type answer struct {
	known  bool // it queues
	token  int64
	at     time.Duration // by the server's clock
	has    bool          // the lock
	reads  bool
	asked  bool // to give the lock up
	behind bool // somebody waits because of it
	reader bool // the one right behind reads

	wait     time.Duration // after which the first one is to look again; 0 if it will be told
	secluded time.Duration // for so long the primary grants nothing
	gap      time.Duration // after which the key is to be left to locks of others
	ahead    int
	nearest  place // of those ahead
}

// A place is one in a queue.
type place struct {
	id    string
	token int64
	about string // what the process says of itself, behind what the script knows
}

// size is that of an answer about a contender that queues.
const size = 15

// parse reads what the script returns.
func parse(words []string) (a answer, err error) {
	number := func(i int) int64 {
		n, e := strconv.ParseInt(words[i], 10, 64)
		if e != nil {
			err = e
		}
		return n
	}
	flag := func(i int) bool { return words[i] == "1" }
	duration := func(i int) time.Duration { return time.Duration(number(i)) * time.Microsecond }
	if len(words) == 2 {
		a.at = duration(1)
		return a, err
	}
	if len(words) != size {
		return a, fmt.Errorf("an answer of %d words", len(words))
	}
	a = answer{
		known: true, token: number(1), at: duration(2), has: flag(3), reads: flag(4), asked: flag(5),
		behind: flag(6), reader: flag(7), wait: duration(8), secluded: duration(9), gap: duration(10), ahead: int(number(11)),
		nearest: place{id: words[12], token: number(13), about: words[14]},
	}
	return a, err
}

func (p place) reads() bool { return len(p.about) > 0 && p.about[0] == 'r' }
func (p place) asked() bool { return len(p.about) > 1 && p.about[1] == 'a' }

func (p place) describe() second.Contender {
	o := p.owner()
	return second.Contender{
		ID: second.Text(p.id), Token: p.token, Since: o.Time, Host: second.Text(o.Host), PID: o.PID, Label: second.Text(o.Label),
		Linger: time.Duration(o.Linger) * time.Millisecond, Shared: p.reads(), Asked: p.asked(),
	}
}
