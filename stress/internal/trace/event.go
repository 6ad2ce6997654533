// Package trace records the requests of processes to a store, the answers and notifications, and their times. It checks them against a
// model of a store: is there an order of execution in which a store could have given these answers?
package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/stress/internal/clock"
)

// An Event is a command, an answer or a notification between a process and its store, or the state of a hold.
type Event struct {
	At      clock.Instant `json:"at"`
	Process string        `json:"process"` // the name of the process, which has one tier
	Kind    Kind          `json:"kind"`
	Number  int64         `json:"n,omitempty"` // the number of a command in its process; the answer has the same number

	Command *Command `json:"command,omitempty"` // the command that was sent
	Answer  *Answer  `json:"answer,omitempty"`
	News    *View    `json:"news,omitempty"`
	Hold    *Hold    `json:"hold,omitempty"`

	Line    int64    `json:"line,omitempty"`    // with ZooKeeper: the number of the connection in its process
	Request *Request `json:"request,omitempty"` // with ZooKeeper: the request that was sent
	Reply   *Reply   `json:"reply,omitempty"`   // with ZooKeeper: the answer to a request, or an event
}

// A Kind is the kind of an event.
type Kind string

const (
	Sent     Kind = "sent"
	Answered Kind = "answered"
	News     Kind = "news"
	Got      Kind = "got"   // the program has acquired the lock
	Valid    Kind = "valid" // the time of the last check in which the program still had the lock
	Gone     Kind = "gone"  // an event of ZooKeeper: a node was deleted
)

// A Hold is a lock that a program believes to have.
type Hold struct {
	Path  string `json:"path"`
	Token int64  `json:"token"`
}

// A Command is the record of a [queue.Command].
type Command struct {
	Op      queue.Op `json:"op"`
	Session string   `json:"session,omitempty"`
	Ref
	Weight int   `json:"weight,omitempty"`
	Old    *Ref  `json:"old,omitempty"`
	Among  []Ref `json:"among,omitempty"`
}

// A Ref is the record of a [queue.Ref].
type Ref struct {
	Path    string `json:"path,omitempty"`
	ID      string `json:"id,omitempty"`
	Reads   bool   `json:"reads,omitempty"`
	Token   int64  `json:"token,omitempty"`
	Permits int    `json:"permits,omitempty"`
}

// An Answer is the record of a [queue.Answer].
type Answer struct {
	Outcome       queue.Outcome `json:"outcome"`
	View          View          `json:"view,omitzero"`
	Views         []View        `json:"views,omitempty"`
	Removed       queue.Removal `json:"removed,omitempty"`
	InGracePeriod bool          `json:"inGracePeriod,omitempty"`
	Session       string        `json:"session,omitempty"`
	TTL           time.Duration `json:"ttl,omitempty"`
	Present       []Ref         `json:"present,omitempty"`
}

// A View is the record of a [queue.View].
type View struct {
	ID            string `json:"id,omitempty"`
	Known         bool   `json:"known,omitempty"`
	Token         int64  `json:"token,omitempty"`
	Failed        bool   `json:"failed,omitempty"` // the view has an error: the state is unknown, or the lock is lost
	Has           bool   `json:"has,omitempty"`
	Reads         bool   `json:"reads,omitempty"`
	Asked         bool   `json:"asked,omitempty"`
	Behind        bool   `json:"behind,omitempty"`
	Free          int    `json:"free,omitempty"`
	Ahead         int    `json:"ahead,omitempty"`
	Nearest       string `json:"nearest,omitempty"`
	InGracePeriod bool   `json:"inGracePeriod,omitempty"`
}

func refOf(r queue.Ref) Ref { return Ref{r.Path, r.ID, r.Reads, r.Token, r.Permits} }

func commandOf(c queue.Command) *Command {
	command := &Command{Op: c.Op, Session: c.Session, Ref: refOf(c.Ref), Weight: c.Weight, Among: each(c.Among, refOf)}
	if c.Old.ID != "" {
		old := refOf(c.Old)
		command.Old = &old
	}
	return command
}

func viewOf(v queue.View) View {
	return View{v.ID, v.Known, v.Token, v.Err != nil, v.Has, v.Reads, v.Asked, v.Behind, v.Free, v.Ahead, v.Nearest.ID, v.InGracePeriod}
}

func answerOf(a queue.Answer) *Answer {
	return &Answer{
		Outcome: a.Outcome, View: viewOf(a.View), Views: each(a.Views, viewOf), Removed: a.Removed, InGracePeriod: a.InGracePeriod,
		Session: a.Name, TTL: a.TTL, Present: each(a.Present, refOf),
	}
}

func (v View) String() string {
	said := fmt.Sprintf("%s waits with token %d", v.ID, v.Token)
	switch {
	case !v.Known:
		return v.ID + " is not there"
	case v.Has:
		said = fmt.Sprintf("%s has the lock, with token %d", v.ID, v.Token)
	case v.Ahead > 0:
		said = fmt.Sprintf("%s behind %d, and %s is the nearest", said, v.Ahead, v.Nearest)
	}
	if v.Behind {
		said += ", and another one waits behind it"
	}
	if v.Asked {
		said += ", and was asked to release it"
	}
	return said
}

func (a *Answer) String() string {
	outcome := [...]string{"unknown", "done", "failed", "denied", "locked", "gone", "expired"}[a.Outcome]
	if a.View.ID == "" {
		return outcome
	}
	return outcome + ", " + a.View.String()
}

func (e Event) inGracePeriod() bool {
	return e.News != nil && e.News.InGracePeriod || e.Answer != nil && (e.Answer.InGracePeriod || e.Answer.View.InGracePeriod)
}

// apart(e) puts the name of the process in front of each contender's name, because two processes may use the same name. It removes the name
// of the nearest contender from a view, because that contender may be of another process.
func apart(e Event) Event {
	name := func(r Ref) Ref {
		if r.ID != "" {
			r.ID = e.Process + "/" + r.ID
		}
		return r
	}
	view := func(v View) View {
		v.ID, v.Nearest = name(Ref{ID: v.ID}).ID, ""
		return v
	}
	if e.Command != nil {
		c := *e.Command
		c.Ref, c.Among = name(c.Ref), each(c.Among, name)
		if c.Old != nil {
			old := name(*c.Old)
			c.Old = &old
		}
		e.Command = &c
	}
	if e.Answer != nil {
		a := *e.Answer
		a.View, a.Views, a.Present = view(a.View), each(a.Views, view), each(a.Present, name)
		e.Answer = &a
	}
	if e.News != nil {
		news := view(*e.News)
		e.News = &news
	}
	return e
}

// The function each applies f to all elements and returns the results.
func each[A, B any](all []A, f func(A) B) (list []B) {
	for _, a := range all {
		list = append(list, f(a))
	}
	return list
}

// A Writer writes the events of a process to a file. It writes each event at once, so that the events survive a kill -9.
type Writer struct {
	process  string
	lines    atomic.Int64 // number of connections to ZooKeeper so far
	requests atomic.Int64 // number of requests so far on all connections

	mu   sync.Mutex // keeps the events apart in the file, and their times in order
	file *os.File
}

// Create creates the file for the events of a process in dir.
func Create(dir string, process int) (*Writer, error) {
	file, err := os.Create(filepath.Join(dir, fmt.Sprintf("trace-%d", process)))
	return &Writer{process: strconv.Itoa(process), file: file}, err
}

// eventOf turns a record into an event.
func eventOf(process string, at clock.Instant, r queue.Record) Event {
	e := Event{At: at, Process: process, Number: r.Number}
	switch {
	case r.Number == 0:
		news := viewOf(r.Answer.View)
		e.Kind, e.News = News, &news
	case r.Sent:
		e.Kind, e.Command = Sent, commandOf(r.Command)
	default:
		e.Kind, e.Answer = Answered, answerOf(r.Answer)
	}
	return e
}

// Record implements [queue.Recorder]: it writes each record to the file.
func (w *Writer) Record(r queue.Record) { w.write(eventOf(w.process, 0, r)) }

// write writes an event with the present time.
func (w *Writer) write(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.At, e.Process = clock.Now(), w.process
	line, err := json.Marshal(e)
	if err == nil {
		_, err = w.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("trace of %s: %v", w.process, err)) // the checker would take an event that is missing for one that did not happen
	}
}

// Read returns the events of all processes in dir.
func Read(dir string) ([]Event, error) {
	names, err := filepath.Glob(filepath.Join(dir, "trace-*"))
	if err != nil {
		return nil, err
	}
	var events []Event
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		some, err := read(file)
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		events = append(events, some...)
	}
	return events, nil
}

// read reads the events of one process. The last one may be incomplete.
func read(r io.Reader) (events []Event, err error) {
	for decoder := json.NewDecoder(bufio.NewReaderSize(r, 1<<20)); ; {
		var e Event
		switch err := decoder.Decode(&e); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return events, nil
		case err != nil:
			return nil, err
		}
		events = append(events, e)
	}
}
