// Package zktest is a ZooKeeper inside the test process: what net/http/httptest is to HTTP.
//
// A [Server] speaks ZooKeeper's wire protocol, so the code under test uses the client it always uses. Clients reach it
// through in-memory pipes, [Server.DialContext], or TCP, [Server.Listen]:
//
//	s := zktest.Start(t)
//	locks, err := zklock.Dial(ctx, "127.0.0.1:2181", zklock.WithDialContext(s.DialContext))
//	conn, _, err := zk.Connect([]string{"127.0.0.1:2181"}, 10*time.Second, zk.WithDialer(s.DialTimeout))
//
// # Virtual time
//
// Over pipes, client and server run in virtual time if both are made inside one testing/synctest bubble. A session of ten
// seconds then expires at its deadline, after microseconds of real time, and a goroutine that the code under test leaves
// behind fails the test. Close clients before the bubble ends; [Start], given the bubble's t, closes the server.
//
// A bubble alone does not report a deadlock of locks, because the heartbeats of sessions keep time going. Package tier logs a
// warning after ten seconds. Once a wait behind one hold of the same process has lasted for a day of virtual time, a
// second or two of real time, the test ends with a panic and the stacks of all goroutines. Keep intentional waits shorter
// than that. Outside of bubbles there is only the warning.
//
//	synctest.Test(t, func(t *testing.T) {
//		s := zktest.Start(t)
//		…
//		s.Mute(conn.SessionID(), zktest.Request) // of a tier.Registry: see Server.Sessions
//		time.Sleep(10 * time.Second) // the session has expired, to the nanosecond
//	})
//
// With [Config.Latency] each frame takes a fixed time to its destination, including handshakes and events. A test can
// therefore count round trips. Dialing and closing take no time. When the server cuts a connection, frames on their way
// are lost. [Server.Intercept] sees frames at the server, and a [Delay] adds to the latency.
//
// # What it does
//
// It implements sessions, with negotiation, resumption and expiry as in a real server; all kinds of nodes except those with
// a time to live; versions, zxids and Stats; sequence numbers, to their end at 2147483647; one-shot watches and their
// replay; ACLs of the schemes world, auth and digest; multi and multiRead. Requests and errors are checked in the order in which the
// real server does, and the package's own tests compare the two, on the same scripts, down to the zxid. It has no
// quotas, persistent watches, SASL, reconfiguration or four-letter commands, and keeps nothing on disk.
//
// It answers like Debian's ZooKeeper 3.8.0. The tests also run against 3.9.3 and list where its answers differ; only one
// difference is within reach of the Go client: from 3.8.4 and 3.9.2 on, exists asks for permission to read the node.
//
// A session expires exactly after its timeout without a message. A real server is up to one tick later.
//
// # Members
//
// One Server stands for a whole ensemble: whatever address is dialed is a [Member] of it, and all of them serve the
// same tree. A member can freeze, refuse connections, lag behind, or lose its leader ([Member.Isolate]). With zklock any
// names will do, such as zk1:2181 and zk2:2181. The Go client by itself looks names up before it dials, and so needs addresses
// such as 127.0.0.1:2181 and 127.0.0.2:2181.
//
// # Faults
//
// Sessions can be expired, cut and muted, members and the whole server frozen. [Server.Intercept] decides the fate of
// single frames: a lost reply is
//
//	s.Intercept(func(f *zktest.Frame) zktest.Action {
//		if f.Op == "create" && f.Dir == zktest.Reply && f.Nth == 2 {
//			return zktest.Cut
//		}
//		return zktest.Pass
//	})
//
// # Observation
//
// [Server.OnChange] lets a test check an invariant after each transaction; [Server.Children], [Server.Get],
// [Server.Sessions] and [Server.Watches] look at the present.
package zktest
