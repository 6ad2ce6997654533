package evidence

import (
	"errors"
	"fmt"
	"os"

	"github.com/tierlock/tierlock/internal/test/oracle"
)

// latch is the attempt of one section to take the kernel's locks of a path. With a limited number of holders, there are Room files, and the
// section locks as many of them as its weight. With an unlimited number, there is one file, which the section locks in shared or exclusive
// mode.
type latch struct {
	everybody bool
	files     []*os.File // open file descriptions that only this section uses
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

// lock takes the kernel's locks for a section of this weight, and reports an overlap if too few are free. All sections try the files in the
// same order and take the first free ones. Therefore a section that is rightly inside finds enough free files, even if others enter and
// leave at the same time: a section that holds a later file has found the earlier ones taken.
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
