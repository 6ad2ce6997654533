package second

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"time"
)

// A Description is what a process says of itself in the content of its contenders: as JSON in ZooKeeper and etcd, elsewhere as a line.
type Description struct {
	Version int       `json:"v"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Label   string    `json:"label,omitempty"`
	Linger  int64     `json:"linger_ms,omitempty"`
	Time    time.Time `json:"time"`             // by the owner's clock
	Revoke  bool      `json:"revoke,omitempty"` // a revoke was requested
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

// Tell copies the description into a contender.
func (d Description) Tell(c *Contender) {
	c.Host, c.PID, c.Label = Text(d.Host), d.PID, Text(d.Label)
	c.Linger = time.Duration(d.Linger) * time.Millisecond
}

// Line is a description as one line: pid, milliseconds of linger, milliseconds since 1970, host and label. The numbers are written in the
// given base.
func (d Description) Line(base int) string {
	number := func(n int64) string { return strconv.FormatInt(n, base) }
	host := strings.ReplaceAll(d.Host, " ", "_")
	return strings.Join([]string{number(int64(d.PID)), number(d.Linger), number(d.Time.UnixMilli()), host, d.Label}, " ")
}

// ReadLine copies a description, given as a line, into the contender. The result is only displayed, so it leaves out what cannot be read.
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
	encoder.SetEscapeHTML(false) // keeps the content below one KiB whatever the label
	encoder.Encode(says)         // strings, numbers and a time that was present: cannot fail
	return strings.TrimSpace(content.String())
}

// A Head is the first part of the JSON of a description, which is the same for all contenders of a process.
type Head string

// HeadOf returns the head of a description, without linger, time and request.
func HeadOf(d Description) Head {
	head, _, _ := strings.Cut(Encode(d), `,"time":`)
	return Head(head)
}

// Now returns the same as Encode of [Description.Now], in a fraction of the time.
func (h Head) Now(linger time.Duration) []byte {
	content := append(make([]byte, 0, len(h)+64), h...)
	if n := linger.Milliseconds(); n != 0 {
		content = strconv.AppendInt(append(content, `,"linger_ms":`...), n, 10)
	}
	content = time.Now().UTC().AppendFormat(append(content, `,"time":"`...), time.RFC3339Nano)
	return append(content, `"}`...)
}

// Mark returns a content with one field set. Fields that a later version has written stay.
func Mark(content, field, to string) string {
	fields := make(map[string]json.RawMessage)
	json.Unmarshal([]byte(content), &fields) // has been read before
	fields[field] = json.RawMessage(to)
	return Encode(fields)
}
