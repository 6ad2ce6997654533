package etcdversion

import (
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestVersionsThatAreTooOld(t *testing.T) {
	for version, old := range map[string]bool{
		"3.4.37": true, "3.4.38": false, "3.5.22": true, "3.5.23": false, "3.6.4": true, "3.6.5": false, "3.6.5-rc.1": false, "3.3.27": true,
		"3.7.0": false, "4.0.0": false, "2.3.8": true, "": false, "main": false,
	} {
		need.Equal(t, version+" is too old", TooOld(version), old)
	}
}
