package zklock

import (
	"bytes"
	"encoding/json"
	"os"
	"time"
)

// A description is the content of a lock node: what its process says of itself.
type description struct {
	Version int       `json:"v"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Label   string    `json:"label,omitempty"`
	Linger  int64     `json:"linger_ms,omitempty"`
	Time    time.Time `json:"time"`             // by the owner's clock
	Revoke  bool      `json:"revoke,omitempty"` // somebody has asked it for the lock
}

func newDescription(label string) description {
	host, _ := os.Hostname() // only for people to read
	return description{Version: 1, Host: host, PID: os.Getpid(), Label: label}
}

// encode returns the content of a node created now, which may linger. Its owner writes once: any
// later write would wake the successor for nothing.
func (d description) encode(linger time.Duration) []byte {
	d.Linger, d.Time = linger.Milliseconds(), time.Now().UTC()
	return encode(d)
}

func encode(fields any) []byte {
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false) // keeps the content below one KiB whatever the label
	encoder.Encode(fields)       // strings, numbers and a time that was present: cannot fail
	return bytes.TrimSpace(data.Bytes())
}

// parseDescription reads the content of a node, if that is a description.
func parseDescription(data []byte) (d description, ok bool) {
	if json.Unmarshal(data, &d) != nil || d.Version != 1 {
		return description{}, false
	}
	return d, true
}
