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

// owner is who runs the servers and owns their data.
type owner struct{ uid, gid int }

// servant is this process's own user, or somebody else if that is root.
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

// runs has cmd run by o.
func (o owner) runs(cmd *exec.Cmd) *exec.Cmd {
	if o.uid != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.gid)}}
	}
	return cmd
}

// gets gives o a file, or a directory with all that is in it.
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
