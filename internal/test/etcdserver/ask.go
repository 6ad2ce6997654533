package etcdserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The variable client bounds each query, because a paused server accepts connections and never answers.
var client = &http.Client{
	Timeout:   time.Second,
	Transport: &http.Transport{DisableKeepAlives: true},
}

// Serves reports whether the server lists the expected members and has a majority. Another program at the address would not have members
// with these names.
func (p *program) Serves() bool {
	var list struct {
		Members []struct{ Name string }
	}
	var health struct{ Health string }
	return p.ask(http.MethodPost, "/v3/cluster/member/list", &list) == nil &&
		slices.Contains(list.Members, struct{ Name string }{p.name()}) &&
		p.ask(http.MethodGet, "/health", &health) == nil && health.Health == "true"
}

// Mode returns "leader" or "follower". It returns an error if the server does not answer or knows no leader. A server needs a moment to
// notice that it has lost its leader, or that it is no longer the leader itself.
func (p *program) Mode() (string, error) {
	var status struct {
		Header struct {
			MemberID string `json:"member_id"`
		}
		Leader string
	}
	if err := p.ask(http.MethodPost, "/v3/maintenance/status", &status); err != nil {
		return "", err
	}
	switch status.Leader {
	case "", "0":
		return "", fmt.Errorf("etcdserver: %s: no leader", p.addr)
	case status.Header.MemberID:
		return "leader", nil
	}
	return "follower", nil
}

// Version returns the server's release, such as "3.7.3". It returns an error if the server does not answer.
func (p *program) Version() (string, error) {
	var version struct{ EtcdServer string }
	err := p.ask(http.MethodGet, "/version", &version)
	return version.EtcdServer, err
}

func (p *program) ask(method, path string, answer any) error {
	request, err := http.NewRequest(method, "http://"+p.addr+path, strings.NewReader("{}"))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcdserver: %s: %s", request.URL, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
