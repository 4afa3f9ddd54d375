package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fencelock/fencelock/internal/clean"
	"github.com/fencelock/fencelock/storeurl"
)

// What the command that is run finds in its environment.
const (
	envName  = "FENCELOCK_NAME"
	envToken = "FENCELOCK_TOKEN"
	envOwner = "FENCELOCK_OWNER"
	envHeld  = "FENCELOCK_HELD"

	// The URL as it was handed on, if a password was cut out of it.
	envWithheld = "FENCELOCK_WITHHELD"
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
		return nil, usage("%s is not the JSON array of names that fencelock run sets; unset it, or hand it on "+
			"unchanged", envHeld)
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
	return usage("%s is held by the fencelock that this command runs under, so it would wait for itself; use "+
		"another name, or leave out the inner lock", quote(name))
}

// childEnv is the environment of a command that runs while name is held: without
// passwords, with what tells it of the lock, and with the store of the lock as
// FENCELOCK_URL, if --url named it.
func childEnv(name, token, owner, byFlag string) ([]string, error) {
	names, err := outerNames()
	if err != nil {
		return nil, err
	}
	held, err := json.Marshal(append(names, heldName(name)))
	if err != nil {
		return nil, err
	}
	whole := clean.Env(envURL)
	if byFlag != "" { // which has no password
		whole = byFlag
	}
	left := storeurl.WithoutPasswords(whole)
	var env []string
	for _, kv := range os.Environ() {
		key, _, _ := strings.Cut(kv, "=")
		switch key {
		case envName, envToken, envOwner, envHeld, envPassword:
			continue
		case envURL:
			if left != whole || byFlag != "" {
				continue
			}
		case envWithheld:
			if left != whole {
				continue
			}
		}
		env = append(env, kv)
	}
	if byFlag != "" {
		env = append(env, envURL+"="+byFlag)
	}
	if left != whole {
		mark := allWithheld
		if left != "" {
			env = append(env, envURL+"="+left)
			mark = left
		}
		env = append(env, envWithheld+"="+mark)
	}
	return append(env,
		envName+"="+name, envToken+"="+token, envOwner+"="+owner, envHeld+"="+string(held)), nil
}

// allWithheld stands in FENCELOCK_WITHHELD if nothing of the URL was handed on.
const allWithheld = "all"

// checkWithheld refuses a URL that came from the fencelock around this one without its
// password, or did not come at all. To go on would mean to ask another store, where the
// same name is another lock.
func (c *cli) checkWithheld(raw string) error {
	mark := os.Getenv(envWithheld)
	switch {
	case mark == "":
		return nil
	case raw == "":
		return fail(exitConfig, "the fencelock around this command did not hand on its %s, for a password is in it; "+
			"give the URL again by %s, or say --url local:", envURL, envURL)
	case raw == mark && c.passwordFile == "" && clean.Env(envPassword) == "":
		return fail(exitConfig, "the fencelock around this command did not hand on the password in its %s; give the "+
			"URL again by %s, or the password by %s or --password-file", envURL, envURL, envPassword)
	}
	return nil
}
