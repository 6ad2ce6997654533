package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// A state is a possible state of a queue.
type state struct {
	unordered bool // the order is that in which they came, but for those who had the lock
	queue     []place
	done      []int   // numbers of those commands that were executed, of those whose answer has not come
	top       int64   // the highest token so far
	gone      []place // contenders about which a later event still reports
}

// A place is a contender in the queue.
type place struct {
	second.Contender
	floor int64 // its token is higher
	facts       // true for the contender, among those that views mention
	told  facts
	once  bool // its name is not used again: it leaves only after all facts that views mention were true
}

// facts are properties that a contender has had; they stay true.
type facts struct{ had, asked, behind bool }

var all = facts{true, true, true}

// add adds those facts of now that views mention.
func (f facts) add(now, told facts) facts {
	return facts{f.had || now.had && told.had, f.asked || now.asked && told.asked, f.behind || now.behind && told.behind}
}

// has reports whether all facts in told were true.
func (f facts) has(told facts) bool { return f == f.add(told, told) }

func (s *state) clone() *state {
	next := *s
	next.queue, next.done, next.gone = slices.Clone(s.queue), slices.Clone(s.done), slices.Clone(s.gone)
	return &next
}

// key returns the same text for states that differ in nothing relevant.
func (s *state) key() string {
	key := make([]byte, 0, 256)
	for _, p := range s.queue {
		key = p.key(key)
	}
	slices.SortFunc(s.gone, func(a, b place) int { return cmp.Compare(a.ID, b.ID) })
	for _, p := range s.gone {
		key = p.key(append(key, '-'))
	}
	slices.Sort(s.done)
	for _, n := range s.done {
		key = strconv.AppendInt(append(key, ' '), int64(n), 10)
	}
	return string(strconv.AppendInt(append(key, ' '), s.top, 10))
}

// key appends a place to a key. The name identifies what is the same for all states.
func (p *place) key(key []byte) []byte {
	key = strconv.AppendInt(append(append(key, p.ID...), ' '), p.Token, 10)
	for _, flag := range [...]bool{p.Shared, p.Asked, p.had, p.asked, p.behind} {
		key = strconv.AppendBool(key, flag)
	}
	return strconv.AppendInt(key, int64(p.Permits), 10)
}

func (s *state) String() string {
	var places []string
	for _, p := range s.queue {
		wants := ""
		if p.Of > 0 {
			wants = fmt.Sprintf(", %d of %d permits", p.Permits, p.Of)
		}
		if p.Shared {
			wants += ", reads"
		}
		places = append(places, fmt.Sprintf("%s (token %d%s)", p.ID, p.Token, wants))
	}
	return "[" + strings.Join(places, ", ") + "]"
}

func (s *state) find(r Ref) int { return slices.IndexFunc(s.queue, r.names) }

// left returns the index of a contender among those that have left.
func (s *state) left(r Ref) int { return slices.IndexFunc(s.gone, r.names) }

// names reports whether the contender at a place is this one.
func (r Ref) names(p place) bool {
	return p.ID == r.ID && (r.Token == 0 || p.Token == 0 || p.Token == r.Token)
}

// met reports whether a contender is in the queue, or was.
func (s *state) met(v View) bool {
	r := Ref{ID: v.ID, Token: v.Token}
	return s.find(r) >= 0 || s.left(r) >= 0
}

// stand returns the view of the i-th contender.
func (s *state) stand(i int) queue.View {
	v := queue.View{ID: s.queue[i].ID}
	v.Stand(i, len(s.queue), func(j int) *second.Contender { return &s.queue[j].Contender })
	return v
}

// settle records the facts that are true now for each contender.
func (s *state) settle() {
	for i := range s.queue {
		v, p := s.stand(i), &s.queue[i]
		p.facts = p.add(facts{v.Has && !s.unordered, p.Asked, v.Behind}, p.told)
	}
}

// remove returns the state without the i-th contender. remove returns nil if a later view shows a fact of that contender which was not
// true yet.
func (s *state) remove(i int) *state {
	p := s.queue[i]
	if p.once && !p.has(p.told) {
		return nil
	}
	s.gone = append(s.gone, p)
	s.queue = slices.Delete(s.queue, i, i+1)
	s.settle()
	return s
}

// advance moves the i-th contender before those that never had the lock, if the order of these is unknown, and returns its new index.
func (s *state) advance(i int) int {
	p := s.queue[i]
	if !s.unordered || p.had {
		return i
	}
	at := slices.IndexFunc(s.queue, func(q place) bool { return !q.had })
	s.queue = slices.Insert(slices.Delete(s.queue, i, i+1), at, p)
	s.queue[at].had = s.stand(at).Has
	s.settle()
	return at
}

// execute returns the state after a command. execute returns nil if the command cannot be executed now, or not with its answer. execute
// also returns nil if the time does not matter: a command that is executed when its answer arrives must find what the answer says.
func (s *state) execute(o *op, now bool) *state {
	a := o.answer
	if o.open() {
		a = nil
	} else if a.Outcome != queue.Done && !now {
		return nil
	}
	next := s.clone()
	if a != nil || o.enters() { // else it would change nothing once more
		next.done = append(next.done, o.number)
	}
	if a != nil && (a.Outcome == queue.Failed || a.Outcome == queue.Denied || a.Outcome == queue.Expired) {
		return next
	}
	i := next.find(o.Ref)
	changed := false
	switch o.Op {
	case queue.Enter, queue.Try:
		return next.enter(o, a)
	case queue.Leave:
		return next.leave(i, a)
	case queue.Ask:
		for j := range next.queue {
			asks := !next.queue[j].Asked && next.stand(j).Has
			next.queue[j].Asked, changed = next.queue[j].Asked || asks, changed || asks
		}
	case queue.Share, queue.Weigh:
		if i >= 0 {
			p := &next.queue[i]
			before := p.Contender
			p.Shared = p.Shared || o.Op == queue.Share
			if o.Op == queue.Weigh {
				p.Permits = min(p.Permits, o.Weight)
			}
			changed = p.Contender != before
		}
	}
	next.settle()
	if a == nil {
		return ifSo(changed, next)
	}
	return ifSo(o.Op == queue.Ask || next.sees(o.Ref, a.View), next)
}

// leave removes the i-th contender, if it exists.
func (s *state) leave(i int, a *Answer) *state {
	switch {
	case a != nil && a.Removed == queue.Missing:
		return ifSo(i < 0, s)
	case a != nil && a.Removed == queue.Kept:
		return s
	case i < 0:
		return ifSo(a != nil, s)
	}
	return s.remove(i)
}

// enter executes an Enter or a Try.
func (s *state) enter(o *op, a *Answer) *state {
	old := -1
	if o.Old != nil {
		old = s.find(*o.Old)
	}
	if a != nil && a.Outcome == queue.Gone {
		return ifSo(old < 0, s)
	}
	if old >= 0 && s.remove(old) == nil {
		return nil
	}
	if s.find(Ref{ID: o.ID}) < 0 { // else it was executed before
		who := second.Contender{ID: o.ID, Shared: o.Reads, Permits: o.Weight, Of: o.Permits}
		p := place{Contender: who, floor: o.floor, told: o.told, once: o.token != 0}
		switch late := o.token <= s.top; {
		case o.token == 0:
		case late && o.repeated: // it comes in again, to another place
			p.told, p.once = all, false
		case late || o.history.next(s.top) < o.token:
			return nil
		default:
			p.Token, s.top = o.token, o.token
		}
		s.queue = append(s.queue, p)
		if i := len(s.queue) - 1; o.Op == queue.Try && !s.stand(i).Has {
			s.queue = s.queue[:i]
			return ifSo(a != nil && a.Outcome == queue.Locked, s)
		}
		s.settle()
	}
	switch {
	case a == nil:
		return s
	case a.Outcome == queue.Locked: // although no contender blocks it
		s.queue = slices.DeleteFunc(s.queue, func(p place) bool { return p.ID == o.ID })
		return ifSo(a.InGracePeriod, s)
	}
	return ifSo(s.sees(Ref{ID: o.ID}, a.View), s)
}

// sees reports whether a command may have found a contender with this view, and takes over its token.
func (s *state) sees(r Ref, v View) bool {
	i := s.find(r)
	switch {
	case v.ID == "" || v.Known && v.Failed:
		return true
	case !v.Known || i < 0:
		return v.Known == (i >= 0)
	}
	if v.Has {
		i = s.advance(i)
	}
	p := &s.queue[i]
	if v.Token != 0 && p.Token == 0 {
		after := slices.ContainsFunc(s.queue[i+1:], func(q place) bool { return q.Token != 0 && q.Token < v.Token })
		if v.Token <= p.floor || after && !s.unordered {
			return false
		}
		p.Token = v.Token
		if !s.unordered { // otherwise the view is about this contender alone
			s.top = max(s.top, v.Token)
		}
	}
	return (v.Token == 0 || v.Token == p.Token) && s.matches(i, v)
}

// matches reports whether the i-th contender has this view.
func (s *state) matches(i int, v View) bool {
	p, now := s.queue[i], s.stand(i)
	told := v.Has || v.Ahead > 0 // else this store tells that by news
	switch {
	case v.InGracePeriod:
		return !v.Has
	case s.unordered:
		return p.was(v)
	case v.Reads != now.Reads || v.Asked && !p.Asked || v.Behind && !now.Behind:
		return false
	}
	// Some stores put a word before the name of a nearest contender.
	near := v.Nearest == "" || strings.HasSuffix(v.Nearest, now.Nearest.ID)
	free := p.Of == 0 || v.Free == now.Free || v.Ahead > 0 && v.Free <= 0 // Redis does not add up what those want who wait
	return !told || v.Has == now.Has && v.Ahead == now.Ahead && near && free
}

// hears returns the state in which a notification is or was true, and nil if it cannot be. In a grace period only the fact that nothing
// is granted counts, as in answers.
func (s *state) hears(v View) *state {
	if v.InGracePeriod {
		v.Asked, v.Behind = false, false
	}
	r := Ref{ID: v.ID, Token: v.Token}
	i := s.find(r)
	if i < 0 {
		left := s.left(r)
		return ifSo(left < 0 || !v.Known || s.unordered || s.gone[left].was(v), s)
	}
	if v.Has && s.unordered {
		s = s.clone()
		i = s.advance(i)
	}
	return ifSo(v.Known && s.queue[i].was(v), s)
}

// was reports whether the lasting facts of a view were true for a contender.
func (p *place) was(v View) bool {
	return p.has(facts{v.Has, v.Asked, v.Behind})
}

func ifSo(so bool, s *state) *state {
	if so {
		return s
	}
	return nil
}
