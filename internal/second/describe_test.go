package second

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestMarkKeepsWhatOthersSay(t *testing.T) {
	label := strings.Repeat("<", 256)
	value := Mark(`{"v":1,"pid":7,"label":"`+label+`","revoke":false,"later":{"a":[1]}}`, "revoke", "true")
	var fields map[string]any
	if err := json.Unmarshal([]byte(value), &fields); err != nil {
		t.Fatal(err)
	}
	if fields["revoke"] != true || fields["pid"] != 7.0 || fields["later"] == nil || !strings.Contains(value, label) {
		t.Errorf("marked: %s", value)
	}
}
