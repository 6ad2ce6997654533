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

// Hold is one acquisition of a lock, as the acquiring process saw it.
type Hold struct {
	Process    int // the number of the worker; a restarted worker gets a new number
	Agent      int // the number of the agent that has the lock for the process; 0 if the process itself has it
	ID         int // the number of the hold within the process
	Path       int
	Weight     int64 // see package rule
	Token      int64
	Asked, Got clock.Instant // when Acquire was called, and when it returned
	// Valid is the latest instant at which the lock is known to have been held. The clock was read then, and afterwards Err or Release
	// returned nil. A loss is final, and therefore the lock was held from Got to Valid. Valid is zero if the lock was never known to be
	// held.
	Valid clock.Instant
	// Over is an instant at which Release had returned. Over is zero if the process was killed before Release returned.
	Over clock.Instant
	Lost bool // the holder noticed that the lock was lost
	Long bool // the section was to last longer than the lease, so the hold had to be renewed

	Refused bool          // the fence has refused the token
	Blind   bool          // Err or Release returned nil after the loss: the fence had refused the token, or Err had reported the loss
	Guarded Guarded       // the guarded write of the section
	Met     *Overlap      // another section had the kernel's lock
	Left    clock.Instant // when this holder had released the kernel's lock
	Nested  []Nesting     // acquisitions of the same lock within this hold
}

// Guarded is the outcome of a guarded write. All fields are zero if there was none, or if its outcome is unknown.
type Guarded struct {
	Written, Refused bool
	Late             int64 // for a write that was made: writes of earlier holders that were committed during the transaction
}

// Overlap is a failed attempt to take the kernel's lock. It happened between two instants.
type Overlap struct{ From, Until clock.Instant }

// Nesting is a reentrant acquisition, from the call of Acquire to the return of Release.
type Nesting struct {
	Token                      int64
	Asked, Got, Called, Return clock.Instant
}

// Journal is the file in which a worker records its holds. What is recorded survives a kill -9.
type Journal struct {
	mu   sync.Mutex // keeps the lines apart from each other
	file *os.File
	last int // the ID of the last hold
}

// CreateJournal creates the journal of a worker.
func CreateJournal(dir string, process int) (*Journal, error) {
	file, err := os.Create(filepath.Join(dir, fmt.Sprintf("journal-%d", process)))
	return &Journal{file: file}, err
}

// Write records the present state of a hold. It replaces what was recorded of this hold before.
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

// NextID returns the ID for the next hold: 1, 2, and so on.
func (j *Journal) NextID() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	return j.last
}

// ReadJournals returns all holds of all workers, each with its last recorded state.
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

// readHolds reads one journal. The last record may be incomplete.
func readHolds(r io.Reader) ([]Hold, error) {
	var holds []Hold
	place := map[int]int{} // the index in holds, by ID
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

// SlotOf returns the slot of a worker, from 0 to procs-1. A restarted worker has a new number, but the slot of its predecessor.
func SlotOf(process, procs int) int { return (process - 1) % procs }
