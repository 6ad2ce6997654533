package verdict

import (
	"fmt"
	"strings"
)

type report struct {
	begin    string
	seed     uint64
	trials   int
	outcomes []outcome
}

func machine() string              { return "" }
func (r *report) document() string { return "" }

func (o outcome) String() string {
	head := fmt.Sprintf("%s/%s trial %d: ", o.Subject, o.Fault, o.Number)
	if o.Error != "" {
		return head + "no outcome: " + strings.ReplaceAll(o.Error, "\n", "; ") + "  " + o.Choice
	}
	return head + fmt.Sprintf("%d overlaps, %.3f s late, never %q, %d left  %s", o.Overlaps, o.Late.Seconds(), o.Never, o.Left, o.Choice)
}
