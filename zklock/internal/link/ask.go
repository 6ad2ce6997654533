package link

// Transact runs a transaction and returns the paths of the znodes that it created.
func (l *Link) Transact(ops ...any) (created []string, err error) {
	a := l.Ask(Transaction(ops))[0]
	return a.Created, a.Err
}

// Reading is a request that reads a znode and has w hear of its end: it asks for the watch,
// unless there is one.
func (l *Link) Reading(path string, w *Watcher) reading {
	return reading{path: path, Watch: !l.Events.listen(path, w), watcher: w}
}

// Read asks, and says of each watch that was asked for in vain that there is none, before
// anything is made of the answers.
func (l *Link) Read(requests ...Request) []Answer {
	answers := l.Ask(requests...)
	for i, q := range requests {
		switch r, ok := q.(reading); {
		case !ok || !r.Watch:
		case answers[i].Err != nil:
			l.Events.failed(r.path, r.watcher)
		default:
			l.Events.saw(r.path, answers[i])
		}
	}
	return answers
}

// WatchQueue lists the queue at path and sees to it that w hears of its next change.
func (l *Link) WatchQueue(path string, w *Watcher) ([]string, error) {
	queue := l.WatchWith(path, w)[0]
	return queue.Children, queue.Err
}

// WatchWith is WatchQueue with other requests beside it, whose answers come behind that to the list.
func (l *Link) WatchWith(path string, w *Watcher, others ...Request) []Answer {
	armed := l.Events.listen(path, w)
	answers := l.Read(append([]Request{Listing{path, !armed}}, others...)...)
	switch {
	case armed:
	case answers[0].Err != nil:
		l.Events.failed(path, w)
	default:
		l.Events.begun(path, w)
	}
	return answers
}
