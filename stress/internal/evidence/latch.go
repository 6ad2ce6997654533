package evidence

import (
	"errors"
	"fmt"
	"os"

	"github.com/tierlock/tierlock/internal/test/oracle"
)

// latch is what one section takes of the kernel's locks of a path: as many of Room files
// as it weighs; or if there is room for everybody a single file, to share it or for itself.
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

// lock takes what a section of this weight needs, or says that it is not to be had. As all
// go through the files in the same order, and take the first that are free, whoever is let
// in by right finds enough of them, though others come and leave at the same time: who holds a
// file further on has found those before it taken.
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
