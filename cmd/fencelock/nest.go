package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

// What the command that is run finds in its environment.
const (
	envName  = "FENCELOCK_NAME"
	envToken = "FENCELOCK_TOKEN"
	envOwner = "FENCELOCK_OWNER"
	envHeld  = "FENCELOCK_HELD"
)

// heldName is one name in FENCELOCK_HELD: a string, or {"name_b64": …} if JSON
// cannot say it.
type heldName string

func (n heldName) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(n)) {
		return json.Marshal(string(n))
	}
	return json.Marshal(map[string]string{"name_b64": base64.StdEncoding.EncodeToString([]byte(n))})
}

func (n *heldName) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*n = heldName(s)
		return nil
	}
	var o struct {
		Name []byte `json:"name_b64"`
	}
	err := json.Unmarshal(b, &o)
	*n = heldName(o.Name)
	return err
}

// outerNames are the locks that this process runs under.
func outerNames() ([]heldName, error) {
	text := os.Getenv(envHeld)
	if text == "" {
		return nil, nil
	}
	var names []heldName
	if err := json.Unmarshal([]byte(text), &names); err != nil {
		return nil, usage("%s is not the JSON array of names that fencelock run sets; unset it, or hand it on unchanged", envHeld)
	}
	return names, nil
}

// checkNesting refuses a name that this process runs under: it would wait for
// itself, until its outer lock is lost.
func checkNesting(name string) error {
	names, err := outerNames()
	if err != nil {
		return err
	}
	if slices.Contains(names, heldName(name)) {
		return deadlock(name)
	}
	return nil
}

func deadlock(name string) error {
	return usage("%s is held by the fencelock that this command runs under, so it would wait for itself; use another name, or leave out the inner lock", quote(name))
}

// childEnv is the environment of a command that runs while name is held: without
// passwords, and with what tells it of the lock.
func childEnv(name, token, owner string) ([]string, error) {
	names, err := outerNames()
	if err != nil {
		return nil, err
	}
	held, err := json.Marshal(append(names, heldName(name)))
	if err != nil {
		return nil, err
	}
	var env []string
	for _, kv := range os.Environ() {
		key, value, _ := strings.Cut(kv, "=")
		switch key {
		case envName, envToken, envOwner, envHeld, envPassword:
			continue
		case envURL:
			if mayHoldSecret(value) {
				continue
			}
		}
		env = append(env, kv)
	}
	return append(env,
		envName+"="+name, envToken+"="+token, envOwner+"="+owner, envHeld+"="+string(held)), nil
}

// mayHoldSecret reports whether a URL has a password, or cannot be told not to have
// one.
func mayHoldSecret(raw string) bool { return strings.Contains(raw, "@") }
