package evidence

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/tierlock/tierlock/stress/internal/clock"
)

// Hold is one acquisition of a lock as its process saw it.
type Hold struct {
	Process    int // no two workers have the same, restarted ones included
	ID         int // within the process
	Path       int
	Weight     int64 // see package rule
	Token      int64
	Asked, Got clock.Instant // call and return of Acquire
	// Valid is the newest instant at which the lock is known to have been held: the clock was read, and afterwards Err or Release returned
	// nil. Since a loss is final, the lock was held from Got to Valid. It is zero if the lock was never known to be held.
	Valid clock.Instant
	// Over is when Release had returned. It is zero if the process was killed before that.
	Over clock.Instant
	Lost bool // the holder found out that the lock was lost

	Refused bool          // the fence refused the token
	Blind   bool          // it did, and yet Err returned nil after that
	Met     *Overlap      // another section had the kernel's lock
	Left    clock.Instant // when this holder had let the kernel's lock go
	Nested  []Nesting     // re-entries
}

// Overlap is a failed attempt to take the kernel's lock, between two instants.
type Overlap struct{ From, Until clock.Instant }

// Nesting is a reentrant acquisition, from the call of Acquire to the return of Release.
type Nesting struct {
	Token                      int64
	Asked, Got, Called, Return clock.Instant
}

// Journal is the file in which a worker records its holds. Records survive a kill -9.
type Journal struct {
	mu   sync.Mutex // keeps lines apart
	file *os.File
	last int // id
}

// CreateJournal creates the journal of a worker.
func CreateJournal(dir string, process int) (*Journal, error) {
	file, err := os.Create(filepath.Join(dir, fmt.Sprintf("journal-%d", process)))
	return &Journal{file: file}, err
}

// Write records the present state of a hold, which replaces its earlier records.
func (j *Journal) Write(h *Hold) error {
	line, err := json.Marshal(h)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, err = j.file.Write(append(line, '\n'))
	return err
}

// NextID numbers the holds from 1.
func (j *Journal) NextID() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	return j.last
}

// ReadJournals returns the newest state of all holds of all workers.
func ReadJournals(dir string) ([]Hold, error) {
	names, err := filepath.Glob(filepath.Join(dir, "journal-*"))
	if err != nil {
		return nil, err
	}
	var holds []Hold
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		found, err := readHolds(file)
		_ = file.Close()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		holds = append(holds, found...)
	}
	return holds, nil
}

// readHolds reads one journal, whose end may be torn.
func readHolds(r io.Reader) ([]Hold, error) {
	var holds []Hold
	place := map[int]int{} // of an id in holds
	for decoder := json.NewDecoder(r); ; {
		var h Hold
		err := decoder.Decode(&h)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return holds, nil
		}
		if err != nil {
			return nil, err
		}
		if i, known := place[h.ID]; known {
			holds[i] = h
			continue
		}
		place[h.ID] = len(holds)
		holds = append(holds, h)
	}
}

// SlotOf returns the slot of a worker among procs slots, from 0. A restarted worker has a new number, and the slot of its predecessor.
func SlotOf(process, procs int) int { return (process - 1) % procs }
