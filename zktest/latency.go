package zktest

import "time"

// A travelling frame is between client and server.
type travelling struct {
	bytes []byte
	due   time.Time
}

// travel puts a frame on its way to the far end of q.
func (c *conn) travel(q *queue[travelling], bytes []byte) {
	q.push(travelling{bytes, time.Now().Add(c.server.cfg.Latency)})
}

// arrival waits for the next frame at the far end of q; it returns false if there will be none.
func (c *conn) arrival(q *queue[travelling]) (bytes []byte, ok bool) {
	t, ok := q.pop()
	if left := time.Until(t.due); ok && left > 0 {
		ok = Delay(left).Await(c.done) == Pass
	}
	return t.bytes, ok
}

// depart sends a frame to the client. Where there is no distance it arrives before anything else happens to the
// connection: a reply that was let through is not lost when the next one is cut.
func (c *conn) depart(bytes []byte) bool {
	if c.server.cfg.Latency > 0 {
		c.travel(c.away, bytes)
		return true
	}
	_, err := c.nc.Write(bytes)
	return err == nil
}

func (c *conn) deliver() {
	defer c.nc.Close()
	for {
		bytes, ok := c.arrival(c.away)
		if !ok {
			return
		}
		if _, err := c.nc.Write(bytes); err != nil {
			return
		}
	}
}
