package second

// A Guard is the set of locks that a guarded write depends on.
type Guard struct {
	Path   string       // the paths of the locks, for errors
	Grants []Grant      // at least one; the user of the Guard must not release them
	Check  func() error // returns an error if this process has lost or released one of the locks
}
