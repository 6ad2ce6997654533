package report

import (
	"fmt"
	"time"
)

// names has the readable name of each kind of lock.
var names = map[string]string{
	"mutex": "tierlock", "rw": "RWMutex", "semaphore": "Semaphore", "zk": "zk.Lock", "etcd": "concurrency.Mutex",
	"advisory": "pg_advisory_lock", "version": "a version column", "redislock": "bsm/redislock",
}

// NameOf returns the readable name of a kind of lock.
func NameOf(lock string) string {
	if name, ok := names[lock]; ok {
		return name
	}
	return lock
}

// Work describes the workload in a sentence.
func (r *Result) Work() string {
	text := fmt.Sprintf("%d × %d%s", r.Procs, r.Goroutines, r.lockText())
	if r.Paths > 1 {
		text += fmt.Sprintf(" on %d locks", r.Paths)
		if r.Zipf > 0 {
			text += fmt.Sprintf(" by Zipf %g", r.Zipf)
		}
	}
	if r.Section == 0 {
		text += ", empty section"
	} else {
		text += ", section of " + Duration(time.Duration(r.Section))
	}
	if r.RTT > 0 {
		text += ", RTT of " + Duration(time.Duration(r.RTT))
	}
	return text
}
