package second

// A Guard is the locks that a guarded write depends on.
type Guard struct {
	Path   string       // of the locks, for errors
	Grants []Grant      // at least one; they must not be released
	Check  func() error // returns why one of them is not ours any more
}

// GuardOf returns the locks of a *tier.Hold or a *tier.Bundle. The error says that there are none. Package tier sets it, so that
// front doors have what programs do not need.
var GuardOf func(guard any) (Guard, error)
