package traffic

import "github.com/fencelock/fencelock/storeurl"

// PasswordVariable is the environment variable that holds a password, which a URL on a
// command line would show to everyone. It replaces one in the URL.
const PasswordVariable = storeurl.EnvPassword

// ParseURL reads a URL as the command fencelock does.
func ParseURL(raw string) (*storeurl.URL, error) {
	return storeurl.Parse(raw, storeurl.Environment("-url"))
}
