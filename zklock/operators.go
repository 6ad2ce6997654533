package zklock

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// Get reads a node. Paths are below that of the connect string, like those of locks and of
// [Node.Multi]; give that the version which was read, since a server may lag.
//
// Get waits for a server that cannot be reached until ctx is done; the error then wraps its
// cause. A node that is not there is [zk.ErrNoNode].
func (c *Client) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	n, err := ask(ctx, c, "get "+path, func() (n znodeRead, err error) {
		n.data, n.stat, err = c.link.Conn.Get(c.absolute(path))
		return n, lacking("READ", path, err)
	})
	return n.data, n.stat, err
}

// Children lists the names below a path, in no order, and reads the stat of the path. It is
// otherwise like [Client.Get].
func (c *Client) Children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	n, err := ask(ctx, c, "children of "+path, func() (n znodeRead, err error) {
		n.children, n.stat, err = c.link.Conn.Children(c.absolute(path))
		return n, lacking("READ", path, err)
	})
	return n.children, n.stat, err
}

// Inspect reads the node of a contender that [ParseQueue] found among the children of path. A
// node that has gone meanwhile is [zk.ErrNoNode]; one that may not be read is no error.
func (c *Client) Inspect(ctx context.Context, path string, q Contender) (Contender, error) {
	return ask(ctx, c, fmt.Sprintf("node %s of %s", q.Node, path), func() (Contender, error) {
		read := q
		err := c.fill(c.absolute(path), &read)
		return read, err
	})
}

type znodeRead struct {
	data     []byte
	children []string
	stat     *zk.Stat
}

// ask asks until there is an answer, ctx ends or the client does.
func ask[T any](ctx context.Context, c *Client, what string, question func() (T, error)) (T, error) {
	ctx, cancel := c.link.Scope(ctx)
	defer cancel()
	answer, err := link.Do(ctx, c.link, func() (T, error) { return insist(ctx, c, question) }, nil)
	if err != nil {
		return *new(T), fmt.Errorf("zklock: %s: %w", what, err)
	}
	return answer, nil
}

// insist repeats a question as long as another time may help.
func insist[T any](ctx context.Context, c *Client, question func() (T, error)) (value T, err error) {
	for pace := retry.New(); ; {
		if _, err := c.link.AwaitSession(ctx); err != nil {
			return value, err
		}
		value, err = question()
		switch classify(err) {
		case done, missing, permanent:
			return value, err
		}
		if err := retry.Pause(ctx, pace.NextBackOff()); err != nil {
			return value, c.link.Explain(err)
		}
	}
}

// A Contender is one node in the queue for a lock.
type Contender struct {
	Node     string // name below the lock path
	Pair     string // that of its second znode, which [WithKazoo] makes; else ""
	Kind     Kind   // by the form of the name
	Sequence int32  // place in the queue: lower goes first
	Data     []byte // content of the node, nil if it is not readable

	// Zero if the server does not tell those who may not read the node.
	Session int64     // that owns the node; 0 for a node that outlives its session
	Token   int64     // fencing token it has as holder; of a writer that is shared by now, a higher number than that
	Since   time.Time // creation of the node, by the server's clock

	// What the process says of itself; zero for other libraries' nodes. Of a text 256 bytes count, and
	// what is not plainly printed is spelled out.
	Host  string
	PID   int
	Label string

	// Asked reports that somebody has asked the contender to give the lock up, see [Lock.Revoke]. If that was
	// Curator's Revoker, its request has taken the place of what the process says of itself.
	Asked bool

	// Linger is for how long the process may keep the node while nobody holds the lock.
	// Lingering reports that it does so now, which only that process knows: others see
	// false.
	Linger    time.Duration
	Lingering bool
}

// Contenders returns the queue, the holder first. It reads each node separately, so the
// result is not a snapshot of one instant; nodes that go meanwhile are left out. A lock
// that was never used has none.
func (l *Lock) Contenders(ctx context.Context) ([]Contender, error) {
	return ask(ctx, l.client, "contenders of "+l.path, func() ([]Contender, error) { return l.survey(ctx) })
}

// survey looks at the queue once.
func (l *Lock) survey(ctx context.Context) ([]Contender, error) {
	children, _, err := l.client.link.Conn.Children(l.path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, lacking("READ", l.path, err)
	}
	var queue []Contender
	names, _ := ParseQueue(children)
	for _, c := range names {
		switch err := l.client.fill(l.path, &c); {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return nil, err
		default:
			queue = append(queue, c)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return queue, nil
}

// ParseQueue tells the contenders among the children of a lock path, in order, from its other
// children. It knows what names tell: Node, Pair, Kind and Sequence; [Client.Inspect] reads the rest.
func ParseQueue(children []string) (queue []Contender, others []string) {
	for _, name := range children {
		kind, sequence, ok := parseName(name)
		if !ok {
			others = append(others, name)
			continue
		}
		queue = append(queue, Contender{Node: name, Kind: makerOf(name, kind), Sequence: sequence})
	}
	slices.SortFunc(queue, func(a, b Contender) int { return cmp.Compare(a.Sequence, b.Sequence) })
	var first *Contender
	contenders := queue[:0]
	for _, c := range queue {
		if first != nil && paired(first.Node, c.Node) {
			first.Pair, first = c.Node, nil
			continue
		}
		contenders = append(contenders, c)
		first = &contenders[len(contenders)-1]
	}
	return contenders, others
}

// fill reads the node of a contender for path.
func (c *Client) fill(path string, q *Contender) error {
	path += "/" + q.Node
	data, stat, err := c.link.Conn.Get(path)
	if errors.Is(err, zk.ErrNoAuth) {
		var exists bool
		if exists, stat, err = c.link.Conn.Exists(path); err == nil && !exists {
			err = zk.ErrNoNode
		}
		if data = nil; errors.Is(err, zk.ErrNoAuth) { // from 3.8.4 and 3.9.2 on
			return nil
		}
	}
	if err != nil {
		return err
	}
	q.read(data, stat)
	return nil
}

// read takes what a node tells.
func (q *Contender) read(data []byte, stat *zk.Stat) {
	q.Session, q.Token, q.Since, q.Data = stat.EphemeralOwner, stat.Czxid, time.UnixMilli(stat.Ctime), data
	q.Asked = asked(data)
	if d, ok := parseDescription(data); ok {
		q.Host, q.PID, q.Label = second.Text(d.Host), d.PID, second.Text(d.Label)
		q.Linger = time.Duration(d.Linger) * time.Millisecond
	}
}

// seen is what is known of a contender that is watched, without another read.
func (l *Lock) seen(name string) Contender {
	kind, _, _ := parseName(name)
	q := Contender{Node: name, Kind: makerOf(name, kind)}
	if a, ok := l.client.link.Events.Seen(l.path + "/" + name); ok {
		q.read(a.Data, &a.Stat)
	}
	return q
}

// CheckPermissions returns nil if the credentials of this client are enough to queue for the lock and to
// release it: CREATE, DELETE and READ on its path, or CREATE on the nearest node above while the
// path does not exist. An error that wraps [zk.ErrNoAuth] names the first that is missing.
//
// The server is asked by a transaction that cannot succeed, so nothing changes. It waits
// for a server that cannot be reached until ctx is done; the error then wraps its cause.
func (l *Lock) CheckPermissions(ctx context.Context) error {
	_, err := ask(ctx, l.client, "permissions for "+l.path, l.tryPermissions)
	return err
}

// tryPermissions asks for all that it takes to queue, and for what cannot be behind it.
func (l *Lock) tryPermissions() (none struct{}, err error) {
	for path := l.path; ; path = parentOf(path) {
		on := path
		if on == "" {
			on = "/"
		}
		try := path + "/" + newID() + "permissions"
		ops := []any{&zk.CreateRequest{Path: try, Acl: l.acl, Flags: zk.FlagEphemeral}}
		needs := []string{"CREATE"}
		if path == l.path {
			ops = append(ops, &zk.DeleteRequest{Path: try, Version: -1})
			needs = append(needs, "DELETE", "READ")
		}
		ops = append(ops, &zk.CheckVersionRequest{Path: on, Version: math.MaxInt32})
		results, err := l.client.link.Conn.Multi(ops...)
		if classify(err) == missing && path != "" {
			continue
		}
		return none, permissionsOf(results, err, on, needs)
	}
}

// permissionsOf reads the outcome. What is asked for in the end is refused in any case.
func permissionsOf(results []zk.MultiResponse, err error, path string, needs []string) error {
	for i, r := range results {
		switch {
		case r.Error == nil:
		case i < len(needs) && errors.Is(r.Error, zk.ErrNoAuth):
			return lacking(needs[i], path, zk.ErrNoAuth)
		case i == len(results)-1 && (errors.Is(r.Error, zk.ErrBadVersion) || errors.Is(r.Error, zk.ErrNoAuth)):
			return nil
		default:
			return r.Error
		}
	}
	return err
}

// Renewable reports whether the path can be made anew when its sequence numbers wear out: it is a
// container that this package made and nobody has changed since. It waits for a server that cannot
// be reached until ctx is done; the error then wraps its cause.
func (l *Lock) Renewable(ctx context.Context) (bool, error) {
	_, err := ask(ctx, l.client, "look at "+l.path, func() (*zk.Stat, error) { return l.client.container(parent{path: l.path}) })
	if errors.Is(err, errNotOurs) {
		return false, nil
	}
	return err == nil, err
}

// Break deletes the node of the holder of the lock if its fencing token is the given one, whoever
// made it, and returns what it was. Of several that read it deletes the one with the token, which is
// that of [Contender]. It is for operators: the next contender is granted the lock
// at once, although the former holder may still work. That holder hears of it from its server,
// or T/6 after the grant if that is later.
//
// Nothing was deleted if the error wraps [ErrNotHolder], whose text says who holds the lock now, or
// [zk.ErrNoAuth]. An answer that is lost is asked for again until ctx is done; if the node is gone
// by then, that is a success, although its owner may have deleted it. If ctx ends first, the
// outcome is unknown, and the node may still be deleted.
func (l *Lock) Break(ctx context.Context, token int64) (Contender, error) {
	b := breaking{lock: l, token: token}
	return ask(ctx, l.client, "break "+l.path, b.try)
}

// A breaking is the deletion of a holder's node.
type breaking struct {
	lock   *Lock
	token  int64
	target *Contender // whose deletion was asked for, without an answer
}

// errDeparted says that the head of the queue went between the look and the delete.
var errDeparted = errors.New("the holder has just gone")

func (b *breaking) try() (Contender, error) {
	head, err := b.holder()
	if err != nil {
		return Contender{}, err
	}
	if head == nil || head.Token != b.token {
		if b.target != nil {
			return *b.target, nil
		}
		return Contender{}, b.refuse(head)
	}
	err = b.delete(head)
	switch outcome := classify(err); {
	case outcome == done:
		return *head, nil
	case outcome == missing:
		return Contender{}, errDeparted // or half of a pair has: look again
	case outcome == unknown && !errors.Is(err, errDeparted):
		b.target = head
	}
	return Contender{}, err
}

// holder reads who holds the lock now: with the token, if anybody does, or else the first; nil if
// nobody does.
func (b *breaking) holder() (*Contender, error) {
	holders, err := b.lock.holders()
	if err != nil || len(holders) == 0 {
		return nil, err
	}
	for i, h := range holders {
		switch {
		case h.Since.IsZero():
			return nil, lacking("READ", b.lock.path+"/"+h.Node, zk.ErrNoAuth)
		case h.Token == b.token:
			return &holders[i], nil
		}
	}
	return &holders[0], nil
}

// holders reads who has the lock now: the head of the queue or, if that reads, those up to the first
// that does not. The sync is for a server that lags.
func (l *Lock) holders() ([]Contender, error) {
	conn, path := l.client.link.Conn, l.path
	if _, err := conn.Sync(path); err != nil && classify(err) != missing {
		return nil, err
	}
	children, _, err := conn.Children(path)
	switch {
	case classify(err) == missing:
		return nil, nil
	case err != nil:
		return nil, lacking("READ", path, err)
	}
	queue, _ := ParseQueue(children)
	var holders []Contender
	for i, q := range queue {
		if i > 0 && !(queue[0].Kind.Reads() && q.Kind.Reads()) {
			break
		}
		switch err := l.client.fill(path, &q); {
		case classify(err) == missing:
		case err != nil:
			return nil, err
		default:
			holders = append(holders, q)
		}
	}
	if len(holders) == 0 && len(queue) > 0 {
		return nil, errDeparted
	}
	return holders, nil
}

func (b *breaking) refuse(head *Contender) error {
	if head == nil {
		return fmt.Errorf("%w: token %d, but nobody holds the lock", ErrNotHolder, b.token)
	}
	return fmt.Errorf("%w: token %d, but the lock is held with token %d by %s (%s, host \"%s\", pid %d, label \"%s\")",
		ErrNotHolder, b.token, head.Token, second.Text(head.Node), head.Kind, head.Host, head.PID, head.Label)
}

// delete asks for all that is left of the node to go. Whoever is at the head stays there until it
// goes, and its name is its own; where that is not so, its version has to be.
func (b *breaking) delete(head *Contender) error {
	version := int32(-1)
	if reusable(head.Node) {
		var err error
		if version, err = b.mark(head); err != nil {
			return err
		}
	}
	ops := []any{&zk.DeleteRequest{Path: b.lock.path + "/" + head.Node, Version: version}}
	if head.Pair != "" {
		ops = append(ops, &zk.DeleteRequest{Path: b.lock.path + "/" + head.Pair, Version: -1})
	}
	_, err := b.lock.client.link.Transact(ops...)
	if errors.Is(err, zk.ErrBadVersion) {
		return errDeparted
	}
	return lacking("DELETE", b.lock.path, err)
}

// unique are the names with a part that is made up for each node.
var unique = regexp.MustCompile(`[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// reusable reports whether another node can have the same name, once the path has been made anew
// and its numbers start again.
func reusable(name string) bool { return !unique.MatchString(name) }

// mark writes to a node what is in it, and returns its new version. Another node of that name
// begins with version 0.
func (b *breaking) mark(head *Contender) (version int32, err error) {
	conn, path := b.lock.client.link.Conn, b.lock.path+"/"+head.Node
	data, stat, err := conn.Get(path)
	if err != nil {
		return 0, lacking("READ", path, err)
	}
	if stat.Czxid == b.token {
		stat, err = conn.Set(path, data, stat.Version)
	}
	switch {
	case errors.Is(err, zk.ErrBadVersion), err == nil && stat.Czxid != b.token:
		return 0, errDeparted
	case err != nil:
		return 0, lacking("WRITE", path, err)
	}
	return stat.Version, nil
}

// request is what Curator writes to a node to ask its owner for the lock.
const request = "__REVOKE__"

// asked reports whether the content of a node is such a request, or has one in it.
func asked(data []byte) bool {
	d, _ := parseDescription(data)
	return d.Revoke || string(data) == request
}

// request is what to write to a node to ask its owner for the lock. A description of ours goes on saying who that is, with
// all that a later version has put there.
func (q Contender) request() []byte {
	if _, described := parseDescription(q.Data); !described || !ownName.MatchString(q.Node) {
		return []byte(request)
	}
	fields := make(map[string]json.RawMessage)
	json.Unmarshal(q.Data, &fields) // has just been read
	fields["revoke"] = json.RawMessage("true")
	return encode(fields)
}

// Revoke asks those that have the lock to give it up, and returns who they are: the one at the head of
// the queue, or if that reads, all that do so without anybody else in between. It adds the request to what
// our nodes say of themselves, and writes "__REVOKE__" to those that say nothing, or what [NodeData] has
// put there, or are of others, as Curator's Revoker does. This package tells the holder, Curator one that is revocable; other
// libraries take no notice. Nobody is made to do anything, and nobody need have the lock: then nobody is asked, and
// that is no error.
//
// It takes WRITE permission on the nodes; an error that wraps [zk.ErrNoAuth] says so. Some may have
// been asked if there is an error. Revoke waits for a server that cannot be reached until ctx is
// done; the error then wraps its cause.
func (l *Lock) Revoke(ctx context.Context) ([]Contender, error) {
	return ask(ctx, l.client, "revoke "+l.path, l.revoke)
}

func (l *Lock) revoke() (told []Contender, err error) {
	holders, err := l.holders()
	if err != nil {
		return nil, err
	}
	for _, h := range holders {
		_, err := l.client.link.Conn.Set(l.path+"/"+h.Node, h.request(), -1)
		switch classify(err) {
		case done:
			told = append(told, h)
		case missing:
		default:
			return nil, lacking("WRITE", l.path+"/"+h.Node, err)
		}
	}
	if len(holders) > 0 && len(told) == 0 {
		return nil, errDeparted
	}
	return told, nil
}

// A description is the content of a lock node: what its process says of itself.
type description struct {
	Version int       `json:"v"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Label   string    `json:"label,omitempty"`
	Linger  int64     `json:"linger_ms,omitempty"`
	Time    time.Time `json:"time"`             // by the owner's clock
	Revoke  bool      `json:"revoke,omitempty"` // somebody has asked it for the lock
}

func newDescription(label string) description {
	host, _ := os.Hostname() // only for people to read
	return description{Version: 1, Host: host, PID: os.Getpid(), Label: label}
}

// encode returns the content of a node created now, which may linger. Its owner writes once: any
// later write would wake the successor for nothing.
func (d description) encode(linger time.Duration) []byte {
	d.Linger, d.Time = linger.Milliseconds(), time.Now().UTC()
	return encode(d)
}

func encode(fields any) []byte {
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false) // keeps the content below one KiB whatever the label
	encoder.Encode(fields)       // strings, numbers and a time that was present: cannot fail
	return bytes.TrimSpace(data.Bytes())
}

// parseDescription reads the content of a node, if that is a description.
func parseDescription(data []byte) (d description, ok bool) {
	if json.Unmarshal(data, &d) != nil || d.Version != 1 {
		return description{}, false
	}
	return d, true
}
