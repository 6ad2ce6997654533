package etcdserver_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var client = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// The functions put and get call etcd through its HTTP gateway.
func put(addr, key, value string) error {
	return call(addr, "put", map[string]any{"key": []byte(key), "value": []byte(value)}, nil)
}

// The function get makes a linearizable read, so it gets no answer without a majority.
func get(addr, key string) (string, error) {
	var found struct {
		Kvs []struct{ Value []byte }
	}
	err := call(addr, "range", map[string]any{"key": []byte(key)}, &found)
	if err != nil || len(found.Kvs) == 0 {
		return "", err
	}
	return string(found.Kvs[0].Value), nil
}

func call(addr, method string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	response, err := client.Post("http://"+addr+"/v3/kv/"+method, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", method, response.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
