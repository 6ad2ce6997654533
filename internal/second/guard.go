package second

// A Guard is the set of locks that a guarded write depends on.
type Guard struct {
	Path   string       // of the locks, for errors
	Grants []Grant      // at least one; they must not be released
	Check  func() error // returns why one of them is not ours any more
}
