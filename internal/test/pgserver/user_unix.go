//go:build unix

package pgserver

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// An owner is the user who runs the servers and owns their data.
type owner struct{ uid, gid int }

// The function servant returns the user of this process. If that user is root, it returns another user.
func servant() (owner, error) {
	if os.Geteuid() != 0 {
		return owner{os.Geteuid(), os.Getegid()}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if uidErr == nil && gidErr == nil {
			return owner{uid, gid}, nil
		}
	}
	return owner{}, fmt.Errorf("PostgreSQL cannot be run by root, and there is no user postgres or nobody")
}

// The method runs makes cmd run as the user o.
func (o owner) runs(cmd *exec.Cmd) *exec.Cmd {
	if o.uid != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.gid)}}
	}
	return cmd
}

// The method gets makes o the owner of a file, or of a directory with all its files.
func (o owner) gets(path string) error {
	if o.uid == os.Geteuid() {
		return nil
	}
	return filepath.WalkDir(path, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, o.uid, o.gid)
	})
}
