package pgserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	superuser = "postgres"
	plain     = "plain"
)

// The function template returns a data directory that no server has used yet. It takes a second or two to create such a directory, so the
// directory is kept for later servers, which use copies. All members of an ensemble have to be copies of the same directory.
func template(i *installation, o owner) (string, error) {
	name := strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' {
			return '-'
		}
		return r
	}, i.version)
	target := filepath.Join(cache(), "cluster-of-"+name)
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	if err := os.MkdirAll(cache(), 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cache(), "cluster-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := o.gets(work); err != nil {
		return "", err
	}
	made := filepath.Join(work, "data")
	initdb := o.runs(i.run("initdb", "--no-sync", "--auth=trust", "--username="+superuser, "--encoding=UTF8", "--locale=C", "--pgdata="+made))
	initdb.Dir = work
	if out, err := initdb.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w: %s", err, out)
	}
	single := o.runs(i.run("postgres", "--single", "-F", "-D", made, superuser))
	single.Dir = work
	single.Stdin = strings.NewReader("CREATE ROLE " + plain + " LOGIN\nCREATE DATABASE " + plain + " OWNER " + plain + "\n")
	if out, err := single.CombinedOutput(); err != nil {
		return "", fmt.Errorf("postgres --single: %w: %s", err, out)
	}
	err = os.Rename(made, target)
	if _, statErr := os.Stat(target); statErr == nil {
		return target, nil // another process may have created it in the meantime
	}
	return "", err
}

// copyTo creates a data directory as a copy of the template.
func copyTo(data, template string, o owner) error {
	return errors.Join(
		os.CopyFS(data, os.DirFS(template)),
		os.Chmod(data, 0o700),
		o.gets(data))
}
