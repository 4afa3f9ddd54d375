package httplock_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/httplock"
	"github.com/fencelock/fencelock/memlock"
)

// A Go program serves its locks to programs in other languages.
func Example() {
	client, err := fencelock.New(memlock.New(), nil) // or redislock.New(rdb, nil), …
	if err != nil {
		panic(err)
	}
	defer client.Close()
	locks, err := httplock.New(client, nil)
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/locks/", http.StripPrefix("/locks", locks))
	server := httptest.NewServer(mux)
	defer server.Close()

	post := func(path, body string) map[string]any {
		res, err := http.Post(server.URL+"/locks/v1/"+path, "application/json", strings.NewReader(body))
		if err != nil {
			panic(err)
		}
		defer res.Body.Close()
		answer := map[string]any{}
		if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
			panic(err)
		}
		return answer
	}
	lock := post("acquire", `{"key":"nightly","owner":"report.py"}`)
	fmt.Println(lock["key"], lock["kind"])
	second := post("acquire", `{"key":"nightly"}`)
	fmt.Println(second["title"])
	handle, _ := json.Marshal(map[string]any{"handle": lock["handle"]})
	fmt.Println(post("release", string(handle))["released"])
	// Output:
	// nightly exclusive
	// The lock is held by somebody else
	// true
}
