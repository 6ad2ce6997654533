package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// hold is one ownership of a lock as its process saw it.
type hold struct {
	Process    int // no two workers have the same, restarted ones included
	ID         int // within the process
	Path       int
	Token      int64
	Asked, Got instant // call and return of Acquire
	// Valid is the newest instant at which the hold is known to have been ours: the
	// clock was read, and then Err returned nil, or Release did. As a loss is for
	// ever, the hold was ours from Got to Valid. Zero if it never was.
	Valid instant
	// Over is when Release had returned; zero if the process was killed before.
	Over instant
	Lost bool // the holder found out that the lock was lost

	Refused bool      // the fence refused the token
	Blind   bool      // it did, and yet Err returned nil after that
	Met     *overlap  // somebody else had the kernel's lock
	Left    instant   // when this holder had let the kernel's lock go
	Nested  []nesting // re-entries
}

// overlap is an attempt at the kernel's lock that failed between two instants.
type overlap struct{ From, Until instant }

// nesting is a re-entry, from the call of Acquire to the return of Release.
type nesting struct {
	Token                      int64
	Asked, Got, Called, Return instant
}

// journal is where a worker writes its holds. What was written survives a kill -9.
type journal struct {
	mu   sync.Mutex // keeps lines apart
	file *os.File
	last int // id
}

func createJournal(dir string, process int) (*journal, error) {
	file, err := os.Create(filepath.Join(dir, fmt.Sprintf("journal-%d", process)))
	return &journal{file: file}, err
}

// write records the state of a hold, which replaces what was written of it before.
func (j *journal) write(h *hold) error {
	line, err := json.Marshal(h)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, err = j.file.Write(append(line, '\n'))
	return err
}

func (j *journal) nextID() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	return j.last
}

// readJournals returns the newest state of all holds of all workers.
func readJournals(dir string) ([]hold, error) {
	names, err := filepath.Glob(filepath.Join(dir, "journal-*"))
	if err != nil {
		return nil, err
	}
	var holds []hold
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
func readHolds(r io.Reader) ([]hold, error) {
	var holds []hold
	place := map[int]int{} // of an id in holds
	for decoder := json.NewDecoder(r); ; {
		var h hold
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
