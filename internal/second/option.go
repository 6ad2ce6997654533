package second

import "fmt"

// A RegistryOption is what constructors of registries take, a MutexOption what registries take for one lock. Which of them an
// option is says the interface by which its package returns it.
type (
	RegistryOption interface{ wrong() error }
	MutexOption    interface{ forMutex() }
)

// Option makes a type that embeds it both; there is no other way to be one.
type Option struct{ Wrong error } // by itself, whatever other options say

func (o Option) wrong() error { return o.Wrong }
func (Option) forMutex()      {}

// Split parts what a constructor is given into options of the store, Own, and of package tier, Shared. It refuses all that the
// registry would, so that there is nothing to close yet.
func Split[Own, Shared any, Given RegistryOption](opts []Given) (own []Own, share []Shared, err error) {
	for _, opt := range opts {
		switch o := any(opt).(type) {
		case Own:
			own = append(own, o)
		case Shared:
			share = append(share, o)
		default:
			return nil, nil, fmt.Errorf("option of type %T; want one of the package of this store, or of package tier", opt)
		}
		if err := opt.wrong(); err != nil {
			return nil, nil, err
		}
	}
	return own, share, nil
}
