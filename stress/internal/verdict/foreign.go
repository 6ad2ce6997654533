package verdict

import (
	"embed"
	"errors"
	"os"
	"path/filepath"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/internal/test/interop"
	"github.com/tierlock/tierlock/stress/internal/store"
)

//go:embed parties
var parties embed.FS

var curator = Subject{
	Name: "curator", Title: "Curator `InterProcessMutex`", Store: store.ZooKeeper,
	Lease: "the session timeout given to `CuratorFrameworkFactory.newClient`; 60 s. " +
		"The connection timeout is also 5 s, because Curator warns of a longer timeout; 15 s",
	Tells: "a `ConnectionStateListener`; the program counts `SUSPENDED` and `LOST` as a loss",
	Limits: []Limit{{
		Text: "If a SUSPENDED state is reported you cannot be certain that you still hold the lock unless you subsequently receive a " +
			"RECONNECTED state.",
		Source: "[Shared Reentrant Lock](https://curator.apache.org/docs/recipes-shared-reentrant-lock)",
	}, {
		Text:   "For a short period of time, BOTH CLIENT A AND CLIENT B WILL BELIEVE THEY ARE THE LOCK HOLDER",
		Source: "[Tech Note 10](https://curator.apache.org/docs/tech-note-10), of a pause that is longer than the session timeout",
	}},
}

var kazoo = Subject{
	Name: "kazoo", Title: "kazoo `Lock`", Store: store.ZooKeeper,
	Lease: "the `timeout` of `KazooClient`; 10 s",
	Tells: "a listener given to `add_listener`; the program counts `SUSPENDED` and `LOST` as a loss",
	Limits: []Limit{{
		Text:   "A client should not assume that locks are valid during this time.",
		Source: "[KazooState.SUSPENDED](https://kazoo.readthedocs.io/en/latest/api/protocol/states.html)",
	}, {
		Text:   "In the event that a LOST state occurs, its certain that the lock and/or the lease has been lost.",
		Source: "[kazoo.recipe.lock](https://kazoo.readthedocs.io/en/latest/api/recipe/lock.html)",
	}},
}

// The function foreign returns the subjects whose processes are programs in other languages. It writes these programs into dir. absent
// has a line for each subject that is missing, with the reason.
func foreign(dir string) (found []Subject, absent []string, err error) {
	if err := os.CopyFS(dir, parties); err != nil {
		return nil, nil, err
	}
	dir = filepath.Join(dir, "parties")
	for _, s := range []struct {
		Subject
		program func() ([]string, error)
	}{
		{curator, func() ([]string, error) { return interop.Curator(filepath.Join(dir, "CuratorParty.java"), dir) }},
		{kazoo, func() ([]string, error) { return interop.Kazoo(filepath.Join(dir, "kazoo_party.py")) }},
	} {
		s.Program, err = s.program()
		switch missing := child.Missing(""); {
		case err == nil:
			found = append(found, s.Subject)
		case errors.As(err, &missing) && !interop.Required():
			absent = append(absent, s.Title+": "+err.Error())
		default:
			return nil, nil, err
		}
	}
	return found, absent, nil
}
