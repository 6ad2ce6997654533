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
	unordered bool // the store's order is unknown: the queue has the order of arrival, but contenders that had the lock are in front
	queue     []place
	done      []int   // the numbers of commands that were executed and whose answers have not come yet
	top       int64   // the highest token so far
	gone      []place // contenders that have left and that a later event still mentions
}

// A place is a contender in the queue.
type place struct {
	second.Contender
	floor int64 // its token is higher than this
	facts       // what was true for the contender, as far as views mention it
	told  facts
	once  bool // its name is not used again, so it can leave only when all facts in told have become true
}

// facts are properties of a contender. Once a fact is true, it stays true.
type facts struct{ had, asked, behind bool }

var all = facts{true, true, true}

// The method add returns f together with those facts of now that are also in told.
func (f facts) add(now, told facts) facts {
	return facts{f.had || now.had && told.had, f.asked || now.asked && told.asked, f.behind || now.behind && told.behind}
}

// facts.has reports whether f contains all facts that are in told.
func (f facts) has(told facts) bool { return f == f.add(told, told) }

func (s *state) clone() *state {
	next := *s
	next.queue, next.done, next.gone = slices.Clone(s.queue), slices.Clone(s.done), slices.Clone(s.gone)
	return &next
}

// The method key returns a text. Two states have the same text if they differ in nothing relevant.
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

// The method key appends a place to a key. It leaves out what the contender's name determines, which is the same in all states.
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

// state.left returns the index of a contender in gone, or -1.
func (s *state) left(r Ref) int { return slices.IndexFunc(s.gone, r.names) }

// The method names reports whether r means the contender at a place.
func (r Ref) names(p place) bool {
	return p.ID == r.ID && (r.Token == 0 || p.Token == 0 || p.Token == r.Token)
}

// The method met reports whether the contender of a view is in the queue or was in it.
func (s *state) met(v View) bool {
	r := Ref{ID: v.ID, Token: v.Token}
	return s.find(r) >= 0 || s.left(r) >= 0
}

// The method stand returns the view that a store in this state has of the i-th contender.
func (s *state) stand(i int) queue.View {
	v := queue.View{ID: s.queue[i].ID}
	v.Stand(i, len(s.queue), func(j int) *second.Contender { return &s.queue[j].Contender })
	return v
}

// The method settle records for each contender which facts are true now.
func (s *state) settle() {
	for i := range s.queue {
		v, p := s.stand(i), &s.queue[i]
		p.facts = p.add(facts{v.Has && !s.unordered, p.Asked, v.Behind}, p.told)
	}
}

// The method remove removes the i-th contender and returns the state. It returns nil if the contender cannot have left yet, because a later
// view shows a fact about it that has not become true.
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

// The method advance is called when the i-th contender has the lock. If the order of the queue is unknown, advance moves the contender
// before all that never had the lock. It returns the contender's new index.
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

// execute returns the state after a command. It returns nil if the command cannot be executed in this state, or cannot have its answer. now
// says that the answer arrives now. A command whose answer is not Done changes nothing. Before its answer arrives, execute therefore
// returns nil for it.
func (s *state) execute(o *op, now bool) *state {
	a := o.answer
	if o.open() {
		a = nil
	} else if a.Outcome != queue.Done && !now {
		return nil
	}
	next := s.clone()
	if a != nil || o.enters() { // any other unanswered command changes nothing if it is executed twice
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

// leave removes the i-th contender if there is one. It returns nil if that contradicts the answer.
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

// enter executes an Enter or a Try: its contender enters the queue.
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
	if s.find(Ref{ID: o.ID}) < 0 { // otherwise the command was executed before
		who := second.Contender{ID: o.ID, Shared: o.Reads, Permits: o.Weight, Of: o.Permits}
		p := place{Contender: who, floor: o.floor, told: o.told, once: o.token != 0}
		switch late := o.token <= s.top; {
		case o.token == 0:
		case late && o.repeated: // the contender enters a second time, at another place
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
	case a.Outcome == queue.Locked: // the answer says so although no contender blocks this one
		s.queue = slices.DeleteFunc(s.queue, func(p place) bool { return p.ID == o.ID })
		return ifSo(a.InGracePeriod, s)
	}
	return ifSo(s.sees(Ref{ID: o.ID}, a.View), s)
}

// The method sees reports whether a command can have found a contender with this view. It gives the contender the token of the view.
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

// matches reports whether a store in this state can show this view of the i-th contender.
func (s *state) matches(i int, v View) bool {
	p, now := s.queue[i], s.stand(i)
	told := v.Has || v.Ahead > 0 // otherwise this store reports the place by a notification
	switch {
	case v.InGracePeriod:
		return !v.Has
	case s.unordered:
		return p.was(v)
	case v.Reads != now.Reads || v.Asked && !p.Asked || v.Behind && !now.Behind:
		return false
	}
	// Some stores put a prefix before the name of the nearest contender.
	near := v.Nearest == "" || strings.HasSuffix(v.Nearest, now.Nearest.ID)
	free := p.Of == 0 || v.Free == now.Free || v.Ahead > 0 && v.Free <= 0 // Redis does not count the permits that waiting contenders want
	return !told || v.Has == now.Has && v.Ahead == now.Ahead && near && free
}

// The method hears returns the state in which the view of a notification is true or was true. It returns nil if there is none. A
// notification in a grace period says for certain only that nothing is granted, as an answer does.
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

// place.was reports whether each fact in a view has been true for the contender.
func (p *place) was(v View) bool {
	return p.has(facts{v.Has, v.Asked, v.Behind})
}

func ifSo(so bool, s *state) *state {
	if so {
		return s
	}
	return nil
}
