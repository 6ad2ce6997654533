package redislock

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// view returns the view of a contender. words come from an answer of the script, or from a message.
func view(id string, words []string) (v queue.View, err error) {
	number := func(i int) int64 {
		n, e := strconv.ParseInt(words[i], 10, 64)
		err = cmp.Or(err, e)
		return n
	}
	flag := func(i int) bool { return words[i] == "1" }
	duration := func(i int) time.Duration { return time.Duration(number(i)) * time.Microsecond }
	switch len(words) {
	case 2:
		v = queue.View{ID: id, At: number(1)}
	case 18:
		v = queue.View{
			ID: id, Known: true, Token: number(1), At: number(2), Has: flag(3), Reads: flag(4), Asked: flag(5),
			Behind: flag(6), Reader: flag(7), Again: duration(8), InGracePeriod: number(9) > 0,
			Yield: duration(10), Ahead: int(number(11)), Nearest: contender(words[12], number(13), words[14]),
			Free: int(number(15)), Waiting: int(number(16)), Of: int(number(17)),
		}
	default:
		err = fmt.Errorf("an answer of %d words", len(words))
	}
	return v, err
}

// list returns the contenders of a queue. words is an answer of the script. If another library holds the lock, with a value at the lock's
// key, it comes first.
func (s *store) list(words []string) (queue []second.Contender, err error) {
	const size = 6
	if len(words)%size != 0 {
		return nil, fmt.Errorf("an answer of %d words", len(words))
	}
	var has []bool
	for ; len(words) > 0; words = words[size:] {
		token, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return nil, err
		}
		c := contender(words[0], token, words[2])
		c.Permits, _ = strconv.Atoi(words[4])
		c.Of, _ = strconv.Atoi(words[5])
		queue, has = append(queue, c), append(has, words[3] == "1")
	}
	if s.tier.GracePeriod() != nil {
		second.InGracePeriod(queue, func(i int) bool { return has[i] })
	}
	return queue, nil
}

// describe returns the description of a contender that enters. It has three parts: one character for the mode, one character that the
// script sets when the lock is asked for, and the description of the process. For commands that enter no contender, it returns "". The
// script parses the description at each acquisition, so the format is simple.
func (s *store) describe(c queue.Command) string {
	mode := "x-"
	switch {
	case c.Op != queue.Enter && c.Op != queue.Try:
		return ""
	case c.Reads:
		mode = "r-"
	}
	return mode + s.self.Now(c.Linger).Line(10)
}

// contender returns the contender whose description is about. The lock of another library has no description.
func contender(id string, token int64, about string) second.Contender {
	c := second.Contender{ID: second.Text(id), Token: token}
	if len(about) >= 2 {
		c.Shared, c.Asked = about[0] == 'r', about[1] == 'a'
		c.ReadLine(about[2:], 10)
	}
	return c
}
