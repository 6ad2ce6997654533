//go:build !unix

package report

import "runtime"

// system returns the name of the operating system.
func system() string { return runtime.GOOS }
