// Package zktest is a ZooKeeper server inside the test process, as net/http/httptest is an HTTP server inside the test process.
//
// A [Server] speaks ZooKeeper's wire protocol, so the code under test can use its normal client. Clients connect through in-memory pipes
// with [Server.DialContext], or through TCP with [Server.Listen]:
//
//	s := zktest.Start(t)
//	locks, err := zklock.Dial(ctx, "127.0.0.1:2181", zklock.WithDialContext(s.DialContext))
//	conn, _, err := zk.Connect([]string{"127.0.0.1:2181"}, 10*time.Second, zk.WithDialer(s.DialTimeout))
//
// # Virtual time
//
// Over pipes, client and server run in virtual time if both are made inside one testing/synctest bubble. A session of ten seconds then
// expires exactly at its deadline, after microseconds of real time. If the code under test leaves a goroutine running, the test fails.
// Close clients before the bubble ends. If [Start] gets the bubble's t, it closes the server at the end.
//
// A bubble alone does not report a deadlock of locks, because the heartbeats of sessions keep virtual time running. Package tier logs a
// warning after ten seconds. If a wait behind one hold of the same process lasts for a day of virtual time, the test ends with a panic and
// the stacks of all goroutines. A day of virtual time takes a second or two of real time. Keep intentional waits shorter than a day.
// Outside of bubbles there is only the warning.
//
//	synctest.Test(t, func(t *testing.T) {
//		s := zktest.Start(t)
//		…
//		s.Mute(conn.SessionID(), zktest.Request) // of a tier.Registry: see Server.Sessions
//		time.Sleep(10 * time.Second) // the session has expired, to the nanosecond
//	})
//
// With [Config.Latency] each frame takes a fixed time to arrive, including handshakes and events. Therefore a test can count round trips.
// Dialing and closing take no time. If the server cuts a connection, frames that have not arrived yet are lost. [Server.Intercept] sees
// frames at the server. A [Delay] is added to the latency.
//
// # What it does
//
// The server implements sessions, with negotiation, resumption and expiry as in a real server. The server implements all kinds of nodes
// except nodes with a time to live, and versions, zxids, Stats and sequence numbers up to their end at 2147483647. The server implements
// one-shot watches and their replay, multi and multiRead, and ACLs of the schemes world, auth and digest. The server checks requests in the
// same order as a real server. The tests of this package run the same scripts on this server and on a real server, and compare the answers,
// including the zxids. The server has no quotas, persistent watches, SASL, reconfiguration or four-letter commands, and stores nothing on
// disk.
//
// The server gives the same answers as Debian's ZooKeeper 3.8.0. The tests also run against ZooKeeper 3.9.3, and list the answers that
// differ. The Go client can observe only one difference: from 3.8.4 and 3.9.2 on, the request exists needs permission to read the node.
//
// A session expires exactly when its timeout has passed without a message. A real server expires it up to one tick later.
//
// # Members
//
// One Server represents a whole ensemble. Each address that a client dials is a [Member] of the ensemble, and all members serve the same
// tree. A member can freeze, refuse connections, lag behind, or lose its leader ([Member.Isolate]). With zklock you can use any names,
// such as zk1:2181 and zk2:2181. The Go client without zklock resolves names before it dials, and therefore needs addresses such as
// 127.0.0.1:2181 and 127.0.0.2:2181.
//
// # Faults
//
// A test can expire, cut and mute sessions, and freeze members or the whole server. With [Server.Intercept], a test decides what happens
// to each frame. For example, this hook loses a reply:
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
// [Server.OnChange] lets a test check an invariant after each transaction. [Server.Children], [Server.Get], [Server.Sessions] and
// [Server.Watches] return the current state.
package zktest
