package second

import (
	"encoding/json"
	"os"
	"strings"
	"time"
)

// A Description is what a process says of itself in the content of its contenders, in ZooKeeper and in etcd.
type Description struct {
	Version int       `json:"v"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Label   string    `json:"label,omitempty"`
	Linger  int64     `json:"linger_ms,omitempty"`
	Time    time.Time `json:"time"`             // by the owner's clock
	Revoke  bool      `json:"revoke,omitempty"` // somebody has asked it for the lock
}

// Describe returns what contenders of this process say.
func Describe(label string) Description {
	host, _ := os.Hostname() // only for people to read
	return Description{Version: 1, Host: host, PID: os.Getpid(), Label: label}
}

// Now is that of a contender which is created now, and may linger.
func (d Description) Now(linger time.Duration) Description {
	d.Linger, d.Time = linger.Milliseconds(), time.Now().UTC()
	return d
}

// Tell takes over what it says of a contender.
func (d Description) Tell(c *Contender) {
	c.Host, c.PID, c.Label, c.Asked = Text(d.Host), d.PID, Text(d.Label), d.Revoke
	c.Linger = time.Duration(d.Linger) * time.Millisecond
}

// Encode returns a content: a Description, or a struct that has one.
func Encode(says any) string {
	var content strings.Builder
	encoder := json.NewEncoder(&content)
	encoder.SetEscapeHTML(false) // keeps the content below one KiB whatever the label
	encoder.Encode(says)         // strings, numbers and a time that was present: cannot fail
	return strings.TrimSpace(content.String())
}

// Mark returns a content with a field set to something. What a later version has put there stays.
func Mark(content, field, to string) string {
	fields := make(map[string]json.RawMessage)
	json.Unmarshal([]byte(content), &fields) // has been read before
	fields[field] = json.RawMessage(to)
	return Encode(fields)
}
