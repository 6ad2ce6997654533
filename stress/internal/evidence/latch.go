package evidence

import (
	"errors"
	"fmt"
	"os"

	"github.com/tierlock/tierlock/internal/test/oracle"
)

// latch is one section's attempt at the kernel's locks of a path. It takes as many of Room files as the section weighs. If the room is
// unlimited, it takes a single file, shared or exclusive.
type latch struct {
	everybody bool
	files     []*os.File // open file descriptions of this section
	locked    []*os.File
}

func openLatch(name string, room oracle.Room) (*latch, error) {
	l := &latch{everybody: room == oracle.Everybody}
	files := room
	if l.everybody {
		files = 1
	}
	for i := range files {
		file, err := os.OpenFile(fmt.Sprint(name, "-", i), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		l.files = append(l.files, file)
	}
	return l, nil
}

// lock takes the locks for a section of this weight, or reports an overlap if they are not free. All sections try the files in the same
// order and take the first free ones. A section that is inside rightfully therefore finds enough of them, even if others enter and leave
// meanwhile: a section that has a file further on has found those before it taken.
func (l *latch) lock(weight int64) (overlap bool, err error) {
	shared := false
	if l.everybody {
		shared, weight = weight < oracle.Everybody, 1
	}
	for _, file := range l.files {
		if int64(len(l.locked)) == weight {
			break
		}
		taken, err := tryLock(file, shared)
		if err != nil {
			return false, err
		}
		if !taken {
			l.locked = append(l.locked, file)
		}
	}
	return int64(len(l.locked)) < weight, nil
}

func (l *latch) unlock() error {
	var errs []error
	for _, file := range l.locked {
		errs = append(errs, unlock(file))
	}
	l.locked = l.locked[:0]
	return errors.Join(errs...)
}

func (l *latch) close() error {
	var errs []error
	for _, file := range l.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}
