package page

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// sight returns the state of a lock at a given time. The lock has changed hands turn times, and its queue has the given length.
func sight(at time.Time, turn, length int) inspect.Sight {
	q := &inspect.Queue{Path: "/jobs/" + strings.Repeat("a-rather-long-name-", 6), Exists: true, At: at}
	for i := range length {
		who := (turn + i) % length
		label := fmt.Sprint("worker ", who)
		if who == 7 {
			label = "<img src=x onerror=alert(1)>\u202e" + strings.Repeat("W", 60)
		}
		q.Contenders = append(q.Contenders, inspect.Contender{
			Node: fmt.Sprint("node-", turn+i), Kind: "tierlock", Sequence: int32(turn + i), State: inspect.Waits, Readable: true,
			Token: 1<<62 + int64(turn+i), Host: "host.example", PID: 1000 + who, Label: label, AgeMS: int64(1000 * (length - i)),
			Behind: fmt.Sprint("node-", turn+i-1), Asked: i == 0,
		})
	}
	q.Contenders[0].State = inspect.Holds
	if length > 2 {
		q.Contenders[2].Behind = q.Contenders[0].Node // makes this contender wait for another one than that directly ahead
	}
	return inspect.Sight{At: at, Queues: []*inspect.Queue{q}, Complete: true}
}

func filled(t *testing.T) *Site {
	t.Helper()
	s := need.Get(Listen("127.0.0.1:0", false, "ZooKeeper", "/jobs", time.Second))(t)
	t.Cleanup(func() { s.Close() })
	begin := time.Now().Add(-time.Minute)
	for turn := range 30 {
		s.Show(sight(begin.Add(time.Duration(turn)*2*time.Second), turn, 12))
	}
	return s
}

func get(s *Site, host, path, method string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
	r.Host = host
	s.server.Handler.ServeHTTP(w, r)
	return w
}

// shown returns the state that the page receives.
func shown(t *testing.T, text []byte) (got state) {
	t.Helper()
	need.OK(t, json.Unmarshal(text, &got))
	return got
}

// Another site may let its name resolve to this address, and could then read this page in a browser. Requests with an unknown host name are
// therefore refused.
func TestOtherNamesAreRefused(t *testing.T) {
	s := filled(t)
	for host, want := range map[string]int{
		"127.0.0.1:8080": 200, "localhost": 200, "[::1]:80": 200, "evil.example": 421, "evil.example:8080": 421, "": 421, "10.0.0.1": 421,
	} {
		if got := get(s, host, "/state.json", "GET"); got.Code != want {
			t.Errorf("at %q: %d, want %d", host, got.Code, want)
		} else if want != 200 && strings.Contains(got.Body.String(), "worker") {
			t.Errorf("at %q: answers %s", host, got.Body)
		}
	}
	s.public, s.name = true, "ops.example"
	for host, want := range map[string]int{"ops.example:80": 200, "10.0.0.1": 200, "evil.example": 421} {
		need.Equal(t, "public, at "+host, get(s, host, "/", "GET").Code, want)
	}
}

func TestOnlyTheLoopbackUnlessPublic(t *testing.T) {
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "10.0.0.1:0", "ops.example:0", "127.0.0.1", "8080"} {
		if s, err := Listen(address, false, "ZooKeeper", "/", time.Second); err == nil {
			t.Errorf("listens at %s", s.URL())
			s.Close()
		}
	}
	local := filled(t)
	if _, port, err := net.SplitHostPort(local.listener.Addr().String()); err != nil || local.URL() != "http://127.0.0.1:"+port+"/" {
		t.Errorf("the loopback: got %s, %v", local.URL(), err)
	}
	s := need.Get(Listen("0.0.0.0:0", true, "ZooKeeper", "/", time.Second))(t)
	s.Close()
}

// The page changes nothing and loads nothing from other sites, and its headers tell the browser so.
func TestThePageIsReadOnlyAndAlone(t *testing.T) {
	s := filled(t)
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		need.Equal(t, method+" of the state", get(s, "localhost", "/state.json", method).Code, http.StatusMethodNotAllowed)
	}
	elsewhere := regexp.MustCompile(`(?i)https?:|//[a-z]|\sstyle=|\son[a-z]+=|innerHTML|eval\(`)
	for path, kind := range map[string]string{"/": "text/html", "/page.css": "text/css", "/page.js": "text/javascript"} {
		got := get(s, "localhost", path, "GET")
		need.Equal(t, path, got.Code, 200)
		need.That(t, path+" is not "+kind, strings.HasPrefix(got.Header().Get("Content-Type"), kind))
		csp := got.Header().Get("Content-Security-Policy")
		need.That(t, fmt.Sprintf("%s: policy %q", path, csp), strings.HasPrefix(csp, "default-src 'none';") && !strings.Contains(csp, "unsafe"))
		text := strings.ReplaceAll(got.Body.String(), "http://www.w3.org/2000/svg", "")
		need.Equal(t, "elsewhere, in "+path, elsewhere.FindString(text), "")
	}
}

// The page keeps a limited amount of data, however long it is open.
func TestTheAlbumIsBounded(t *testing.T) {
	var a album
	begin := time.Now()
	var text []byte
	for turn := range 3 * maxSpans {
		s := sight(begin.Add(time.Duration(turn)*100*time.Millisecond), turn, 100)
		for i := range maxLocks + 10 {
			q := *s.Queues[0]
			q.Path = fmt.Sprintf("/z/%d", i)
			if turn == 0 || turn == 3*maxSpans-1 {
				s.Queues = append(s.Queues, &q)
			}
		}
		text = a.add(s)
	}
	got := shown(t, text)
	first := got.Locks[0]
	if len(got.Locks) != maxLocks || got.More != 11 || len(first.Waiters) != maxWaiters || first.Waiting != 99 || len(first.Spans) > maxSpans {
		t.Errorf("%d locks, %d more, %d waiters of %d, %d spans", len(got.Locks), got.More, len(first.Waiters), first.Waiting, len(first.Spans))
	}
	last := begin.Add(3 * maxSpans * 100 * time.Millisecond)
	a.add(inspect.Sight{At: last})
	need.Between(t, "locks that are remembered, held a moment ago", len(a.locks), 1, maxLocks)
	a.add(inspect.Sight{At: last.Add(window), Trouble: "no answer"})
	need.That(t, "old locks are forgotten although there is no newer sight", len(a.locks) != 0)
	a.add(inspect.Sight{At: last.Add(window + time.Second)})
	need.Equal(t, "locks are remembered that are long gone", len(a.locks), 0)
}

// If readers hold the lock at the same time, each has a separate lane.
func TestAllHoldersAreShown(t *testing.T) {
	var a album
	begin := time.Now()
	var got state
	for look := range 3 {
		s := sight(begin.Add(time.Duration(look)*time.Second), 0, 5)
		for i := range look + 1 { // one more holder each time
			s.Queues[0].Contenders[i].State, s.Queues[0].Contenders[i].Behind = inspect.Holds, ""
		}
		got = shown(t, a.add(s))
	}
	l := got.Locks[0]
	need.That(t, fmt.Sprintf("got %+v", l),
		l.Holding == 3 && len(l.Holders) == 3 && l.Waiting == 2 && len(l.Waiters) == 2 && l.Waiters[0].For == l.Holders[2].Who)
	last := begin.Add(2 * time.Second).UnixMilli()
	for i, s := range l.Spans {
		want := begin.Add(time.Duration(i) * time.Second).UnixMilli()
		if i == 0 {
			want = begin.UnixMilli() - 5000 // the node is 5 s old
		}
		need.That(t, fmt.Sprintf("span %d: %+v, not %d to %d", i, s, want, last), s.From == want && s.To == last && s.Who == l.Holders[i].Who)
	}
	need.Equal(t, "spans", len(l.Spans), 3)
}

// A bar starts when its hold began. If the holder was seen waiting before, this is when it was first seen as the holder. Otherwise it is
// when its node was created. In the first poll, that is only the earliest possible time, and the bar shows that.
func TestBarsBeginWhenTheHoldBegan(t *testing.T) {
	var a album
	begin := time.Now()
	look := func(after time.Duration, ages ...time.Duration) lock {
		q := &inspect.Queue{Path: "/a"}
		for i, age := range ages {
			c := inspect.Contender{Node: begin.Add(after - age).String(), Readable: true, AgeMS: age.Milliseconds(), State: inspect.Waits}
			if i == 0 {
				c.State = inspect.Holds
			}
			q.Contenders = append(q.Contenders, c)
		}
		return shown(t, a.add(inspect.Sight{At: begin.Add(after), Queues: []*inspect.Queue{q}})).Locks[0]
	}
	for _, c := range []struct {
		when         string
		after        time.Duration
		ages         []time.Duration
		held         time.Duration
		atMost       bool
		spans, began int // the beginning of the last span, in seconds
	}{
		{"at the first look", 0, []time.Duration{time.Hour, time.Minute}, time.Hour, true, 1, -3600},
		{"later", time.Second, []time.Duration{time.Hour + time.Second, time.Minute + time.Second}, time.Hour + time.Second, true, 1, -3600},
		{"a contender that waited", 10 * time.Second, []time.Duration{time.Minute + 10*time.Second}, 0, false, 2, 10},
		{"a contender that came between two looks", 20 * time.Second, []time.Duration{3 * time.Second}, 3 * time.Second, false, 3, 17},
		{"by a clock that is ahead", 30 * time.Second, []time.Duration{time.Minute}, 10 * time.Second, false, 4, 20},
	} {
		l := look(c.after, c.ages...)
		h, last := l.Holders[0], l.Spans[len(l.Spans)-1]
		if h.Held != c.held.Milliseconds() || h.AtMost != c.atMost || len(l.Spans) != c.spans ||
			last.From != begin.Add(time.Duration(c.began)*time.Second).UnixMilli() {
			t.Errorf("%s: held for %d ms, at most: %t, the last of %d bars: %+v; want %+v", c.when, h.Held, h.AtMost, len(l.Spans), last, c)
		}
	}
}

// A reader that stays is not forgotten, although many short readers come and leave.
func TestALongSpanOutlastsManyShortOnes(t *testing.T) {
	var a album
	begin := time.Now()
	var got state
	for look := range 2 * maxSpans {
		s := sight(begin.Add(time.Duration(look)*100*time.Millisecond), 0, 2)
		c := &s.Queues[0].Contenders[1]
		c.State, c.Node = inspect.Holds, fmt.Sprint("short-", look)
		got = shown(t, a.add(s))
	}
	spans := got.Locks[0].Spans
	if spans[0].From != begin.UnixMilli()-2000 || spans[0].To != got.At || len(spans) != maxSpans {
		t.Errorf("%d spans, the first: %+v", len(spans), spans[0])
	}
}

// probe reports how a browser displays the page, in a frame that may be narrower than a window: its width, text that does not fit,
// whether 500 processes have different colors and 12 can be distinguished easily, the result of a search, how many of 200 locks are open
// before and after a redraw and a click, and whether the page is redrawn during a click.
const probe = `
setTimeout(() => {
  const bad = [...document.querySelectorAll("body *")].filter((e) =>
    !e.closest("svg") && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline");
  const body = parent.document.body;
  body.dataset.width = innerWidth;
  body.dataset.page = document.documentElement.scrollWidth;
  body.dataset.bad = bad.map((e) => e.className || e.tagName).join(" ");
  const all = { locks: [{ spans: Array.from({ length: 500 }, (_, i) => ({ who: i })), holders: [] }] };
  body.dataset.colours = new Set(colours(all).values()).size;
  const twelve = [...colours(all).values()].slice(0, 12).map((c) => c.match(/[\d.]+/g).map(Number));
  body.dataset.near = twelve.flatMap((a, i) => twelve.slice(0, i).filter((b) =>
    Math.abs((a[0] - b[0] + 540) % 360 - 180) < 50 && Math.abs(a[1] - b[1]) < 20 && Math.abs(a[2] - b[2]) < 15)).length;
  body.dataset.found = ["WORKER 6", "nobody", ""].map((text) => {
    search.value = text;
    search.dispatchEvent(new Event("input"));
    return document.querySelectorAll(".lock").length;
  }).join(" ");
  const one = latest, open = () => {
    show(latest);
    return [...[".lock", ".lock[open]"].map((s) => document.querySelectorAll(s).length), document.querySelector(".lane") !== null];
  };
  latest = { ...one, locks: Array.from({ length: 200 }, (_, i) => ({ ...one.locks[0], path: "/" + i })) };
  body.dataset.lines = open();
  document.querySelectorAll("summary")[5].focus();
  document.activeElement.click();
  body.dataset.opened = [...open(), document.querySelectorAll("summary").item(5) === document.activeElement];
  document.activeElement.click();
  body.dataset.closed = open();
  latest = one;
  body.dataset.drawn = ["pointerdown", "pointerup"].map((event) => {
    dispatchEvent(new Event(event));
    show(latest);
    return document.querySelectorAll(".lock").length;
  });
  for (const part of ["header", "main"]) body.append(parent.document.importNode(document.querySelector(part), true));
}, 1500);`

func TestTheBrowserShowsHolderAndWaitersAndAllTextFits(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("TIERLOCK_REQUIRE_CHROMIUM") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	s := filled(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/probe.js":
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, probe)
		case "/frame":
			fmt.Fprintf(w, `<!doctype html><body><iframe src="/" width="%s" height="1000" style="border: 0"></iframe>`, r.URL.RawQuery)
		case "/":
			s.server.Handler.ServeHTTP(&framed{w}, r)
			fmt.Fprint(w, `<script src="probe.js"></script>`)
		default:
			s.server.Handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	for _, width := range []int{390, 1280} {
		dom := dump(t, chromium, fmt.Sprintf("%s/frame?%d", server.URL, width))
		for what, want := range map[string]string{
			"width":  fmt.Sprintf(`data-width="%d"`, width),
			"page":   fmt.Sprintf(`data-page="%d"`, width),
			"bad":    `data-bad=""`,
			"holder": `holds</span><span class="who">worker 5 · host.example:1005</span>`,
			"token":  "token 4611686018427387933",
			"asked":  "asked to give it up",
			"for":    `<span class="soft for">waits for worker 5 · host.example:1005`,
			"waiter": `<span class="who">worker 6 · host.example:1006</span>`,
			"evil":   `&lt;img src=x onerror=alert(1)&gt;\u202eWWW`,
			"more":   "and 3 more",
			"lanes":  `class="lane"`,
			"spans":  `<rect fill="hsl(`,
			"colour": `data-colours="500"`,
			"near":   `data-near="0"`,
			"search": `data-found="1 0 1"`,
			"store":  `>ZooKeeper</span>`,
			"held":   "held for ",
			"lines":  `data-lines="200,0,false"`,
			"opened": `data-opened="200,1,true,true"`,
			"drawn":  `data-drawn="200,1"`,
			"closed": `data-closed="200,0,false"`,
		} {
			if !strings.Contains(dom, want) {
				t.Errorf("%d pixels: %s: no %s in the page; it has %s", width, what, want,
					regexp.MustCompile(`data-\w+="[^"]*"`).FindAllString(dom, -1))
			}
		}
		need.Equal(t, "contenders with a text that names the contender they wait for, in a row of 12", strings.Count(dom, "waits for "), 1)
		need.That(t, "a label has become markup", !strings.Contains(dom, "<img"))
		need.That(t, "a label turns text around", !strings.Contains(dom, "\u202e"))
	}
}

// A framed is a response whose page may be shown in a frame of the same origin. Normally no page may show it in a frame.
type framed struct{ http.ResponseWriter }

func (f *framed) Write(text []byte) (int, error) {
	h := f.Header()
	h.Set("Content-Security-Policy", strings.Replace(h.Get("Content-Security-Policy"), "frame-ancestors 'none'", "frame-ancestors 'self'", 1))
	return f.ResponseWriter.Write(text)
}

func dump(t *testing.T, chromium, url string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(),
		"--hide-scrollbars", "--window-size=1400,1100", "--virtual-time-budget=5000", "--dump-dom", url)
	cmd.WaitDelay = time.Second
	stop := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer stop.Stop()
	dom, err := cmd.Output()
	need.Must(t, fmt.Sprintf("%s: %v", cmd, err), err == nil)
	return string(dom)
}

func TestPageSaysThatNothingIsGranted(t *testing.T) {
	s := filled(t)
	now := sight(time.Now(), 31, 1)
	now.GracePeriod = &tier.GracePeriodError{Until: time.Now(), Reason: "the server is new"}
	now.Queues[0].Path, now.Queues[0].Contenders[0].State = "/jobs/new", inspect.InGracePeriod
	s.Show(now)
	state := shown(t, get(s, "127.0.0.1", "/state.json", "GET").Body.Bytes())
	need.Equal(t, "grants", state.Grants, now.GracePeriod.Error())
	for _, l := range state.Locks {
		if l.Path == "/jobs/new" && l.Holding == 0 && l.Waiting == 1 && len(l.Waiters) == 1 && l.Waiters[0].State == "grace-period" {
			return
		}
	}
	t.Errorf("want one that waits for /jobs/new: %+v", state.Locks)
}

func TestASemaphoreIsOneOnThePage(t *testing.T) {
	q := &inspect.Queue{Path: "/pool", Semaphore: &inspect.Semaphore{
		Permits: inspect.Permits{All: 5, InUse: 4}, Queue: []inspect.Contender{{Node: "first", Label: "batch", State: inspect.Next}},
	}}
	album, begin := new(album), time.Now()
	var got state
	for i := range 3 { // each time these are other permits
		q.Semaphore.Shares = nil
		q.Semaphore.Add(&inspect.Contender{Node: fmt.Sprint("a", i), Readable: true, Label: "billing", Host: "h", PID: 7}, 3)
		q.Semaphore.Add(&inspect.Contender{Node: fmt.Sprint("b", i), Readable: true, Host: "h", PID: 8}, 1)
		at := begin.Add(time.Duration(i) * time.Second)
		got = shown(t, album.add(inspect.Sight{At: at, Queues: []*inspect.Queue{q}}))
	}
	need.Must(t, fmt.Sprintf("got %+v", got.Locks), len(got.Locks) == 1)
	l := got.Locks[0]
	need.That(t, fmt.Sprintf("%+v", l), l.Holding == 2 && l.Waiting == 1 && l.Waiters[0].State == "next")
	need.Equal(t, "permits", l.Permits, "4 of 5 permits in use")
	need.Equal(t, "all permits", l.All, 5)
	need.That(t, fmt.Sprintf("the first holder: %+v, want 3 for 2 s", l.Holders[0]), l.Holders[0].Count == 3 && l.Holders[0].Held == 2000)
	if h := l.Holders; len(h) != 2 || h[0].Who+h[0].Permits != "billing · h:73 permits" || h[1].Who+h[1].Permits != "h:81 permit" {
		t.Errorf("holders: %+v", h)
	}
	if s := l.Spans; len(s) != 2 || s[0].Who != "billing · h:7" || s[0].To-s[0].From != 2000 {
		t.Errorf("spans: %+v, want one for each process", s)
	}
	q.Semaphore.Queue = nil
	q.Semaphore.Add(&inspect.Contender{Node: "c", Readable: true, Label: "batch", AgeMS: 60_000}, 1)
	got = shown(t, album.add(inspect.Sight{At: begin.Add(3 * time.Second), Queues: []*inspect.Queue{q}}))
	if h := got.Locks[0].Holders; len(h) != 3 || h[2].Held != 0 {
		t.Errorf("one that waited until now has permits: %+v", h)
	}
}
