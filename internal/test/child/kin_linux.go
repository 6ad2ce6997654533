package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// The function kin lists the children of a process.
func kin(pid int) (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		text, _ := os.ReadFile(stat) // this file does not exist if the process has ended
		var state string
		var parent int
		// The name of the process, in parentheses, may contain any characters.
		if _, err := fmt.Sscan(string(text[bytes.LastIndexByte(text, ')')+1:]), &state, &parent); err != nil || parent != pid {
			continue
		}
		var child int
		if _, err := fmt.Sscan(filepath.Base(filepath.Dir(stat)), &child); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}
