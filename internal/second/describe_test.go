package second

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestALineSaysWhatItWasMadeOf(t *testing.T) {
	says := Description{Host: "a host", PID: 70, Label: "night run", Linger: 1500, Time: time.UnixMilli(1700000000123).UTC()}
	want := Contender{Host: "a_host", PID: 70, Label: "night run", Linger: 1500 * time.Millisecond, Since: says.Time}
	for _, base := range []int{10, 36} {
		var got Contender
		got.ReadLine(says.Line(base), base)
		if got.ReadLine("1 2 3", base); got != want { // an unreadable line changes nothing
			t.Errorf("in base %d: %+v, want %+v", base, got, want)
		}
	}
}

func TestMarkKeepsWhatOthersSay(t *testing.T) {
	label := strings.Repeat("<", 256)
	value := Mark(`{"v":1,"pid":7,"label":"`+label+`","revoke":false,"later":{"a":[1]}}`, "revoke", "true")
	var fields map[string]any
	need.OK(t, json.Unmarshal([]byte(value), &fields))
	need.That(t, "it is "+value, fields["revoke"] == true && fields["pid"] == 7.0 && fields["later"] != nil && strings.Contains(value, label))
}
