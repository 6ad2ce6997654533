package second

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"time"
)

// A Description tells which process owns a contender. It is stored with the contender: in ZooKeeper and etcd as JSON, in other stores as
// one line of text.
type Description struct {
	Version int       `json:"v"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Label   string    `json:"label,omitempty"`
	Linger  int64     `json:"linger_ms,omitempty"`
	Time    time.Time `json:"time"`             // by the owner's clock
	Revoke  bool      `json:"revoke,omitempty"` // a revoke was requested
}

// Describe returns the description for contenders of this process.
func Describe(label string) Description {
	host, _ := os.Hostname() // only for people to read
	return Description{Version: 1, Host: host, PID: os.Getpid(), Label: label}
}

// Now returns the description for a contender that is created now. linger is its [Options.MayLinger].
func (d Description) Now(linger time.Duration) Description {
	d.Linger, d.Time = linger.Milliseconds(), time.Now().UTC()
	return d
}

// Tell copies the description into a contender, except for the time.
func (d Description) Tell(c *Contender) {
	c.Host, c.PID, c.Label = Text(d.Host), d.PID, Text(d.Label)
	c.Linger = time.Duration(d.Linger) * time.Millisecond
}

// Line returns the description as one line: PID, Linger in milliseconds, Time in milliseconds since 1970, host and label. The numbers are
// written in the given base.
func (d Description) Line(base int) string {
	number := func(n int64) string { return strconv.FormatInt(n, base) }
	host := strings.ReplaceAll(d.Host, " ", "_")
	return strings.Join([]string{number(int64(d.PID)), number(d.Linger), number(d.Time.UnixMilli()), host, d.Label}, " ")
}

// ReadLine copies a description, given as a line, into the contender. People only look at the result, so a field that cannot be parsed is
// no error.
func (c *Contender) ReadLine(line string, base int) {
	fields := strings.SplitN(line, " ", 4)
	if len(fields) < 4 {
		return
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(fields[i], base, 64)
		return n
	}
	host, label, _ := strings.Cut(fields[3], " ")
	Description{Host: host, PID: int(number(0)), Label: label, Linger: number(1)}.Tell(c)
	c.Since = time.UnixMilli(number(2)).UTC()
}

// Encode returns the content of a contender: the JSON of a Description, or of a struct that embeds one.
func Encode(says any) string {
	var content strings.Builder
	encoder := json.NewEncoder(&content)
	encoder.SetEscapeHTML(false) // escapes would make a long label exceed one KiB
	encoder.Encode(says)         // cannot fail: the fields are strings, numbers and a time with a year that JSON allows
	return strings.TrimSpace(content.String())
}

// A Head is the first part of the JSON of a description. This part is the same for all contenders of a process.
type Head string

// HeadOf returns the head of a description: the JSON before Linger, Time and Revoke.
func HeadOf(d Description) Head {
	head, _, _ := strings.Cut(Encode(d), `,"time":`)
	return Head(head)
}

// Now returns the same JSON as [Encode] returns for [Description.Now], in a fraction of the time.
func (h Head) Now(linger time.Duration) []byte {
	content := append(make([]byte, 0, len(h)+64), h...)
	if n := linger.Milliseconds(); n != 0 {
		content = strconv.AppendInt(append(content, `,"linger_ms":`...), n, 10)
	}
	content = time.Now().UTC().AppendFormat(append(content, `,"time":"`...), time.RFC3339Nano)
	return append(content, `"}`...)
}

// Mark returns the JSON in content with one field set. It keeps fields that this version does not know.
func Mark(content, field, to string) string {
	fields := make(map[string]json.RawMessage)
	json.Unmarshal([]byte(content), &fields) // cannot fail: the caller has parsed it before
	fields[field] = json.RawMessage(to)
	return Encode(fields)
}
