package load

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// showProgress keeps a live line on stderr, if that is a terminal, until the returned
// function is called.
func showProgress(cfg Config, c Children, stderr io.Writer) (finish func()) {
	file, ok := stderr.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return func() {}
	}
	bar := progressbar.NewOptions64(cfg.Duration.Milliseconds(),
		progressbar.OptionSetWriter(stderr), progressbar.OptionSetWidth(20),
		progressbar.OptionSetElapsedTime(false), progressbar.OptionSetPredictTime(false),
		progressbar.OptionClearOnFinish())
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		drawProgress(cfg, c, bar, done)
	}()
	return func() {
		close(done)
		<-stopped
	}
}

func drawProgress(cfg Config, c Children, bar *progressbar.ProgressBar, done <-chan struct{}) {
	start := time.Now()
	tick := time.NewTicker(livePeriod)
	defer tick.Stop()
	for {
		select {
		case <-done:
			_ = bar.Finish()
			return
		case <-tick.C:
		}
		elapsed, sum := time.Since(start), c.total()
		rate := float64(sum.Acquisitions) / elapsed.Seconds()
		bar.Describe(fmt.Sprintf("%s  %.0f/s  overlaps %d ", cfg.Lock, rate, sum.Overlaps))
		// One short of the end: a full bar would close itself while workers still
		// drain.
		_ = bar.Set64(min(elapsed, cfg.Duration).Milliseconds() - 1)
	}
}
