package zookeeper

import (
	"strings"
	"testing"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command"
)

// An error about credentials must not quote them.
func TestCredentialsAreNotQuoted(t *testing.T) {
	t.Setenv("TIERLOCK_AUTH", "digest:a:b\n\nhunter2")
	_, err := auth(new(command.Address))
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("got %v, want an error about line 3", err)
	}
}
