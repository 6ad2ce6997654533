package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Amount formats a number with three significant digits. It fills up with zeros and separates thousands.
func Amount(v float64) string { return Rounded(v, 3) }

// Rounded formats a number with the given number of significant digits. It fills up with zeros and separates thousands.
func Rounded(v float64, digits int) string {
	if v == 0 {
		return "0"
	}
	magnitude := int(math.Floor(math.Log10(math.Abs(v))))
	unit := math.Pow(10, float64(magnitude-digits+1))
	v = math.Round(v/unit) * unit
	text := strconv.FormatFloat(v, 'f', max(0, digits-1-magnitude), 64)
	if strings.Contains(text, ".") {
		return strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return grouped(text)
}

// The function grouped separates the thousands of a number with commas.
func grouped(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Duration formats a duration with three significant digits and a unit.
func Duration(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if d >= unit.size {
			return Amount(float64(d)/float64(unit.size)) + " " + unit.name
		}
	}
	return fmt.Sprint(d.Nanoseconds(), " ns")
}
