package traffic

import (
	"os"

	"github.com/fencelock/fencelock/storeurl"
)

// PasswordVariable is the environment variable that holds a password, which a URL on a
// command line would show to everyone. It replaces one in the URL.
const PasswordVariable = storeurl.EnvPassword

// ParseURL reads a URL as the command fencelock takes it, and for PostgreSQL with settings
// such as ?sslmode=disable, which the command takes from the environment.
func ParseURL(raw string) (*storeurl.URL, error) {
	return storeurl.Parse(raw, storeurl.Source{Name: "-url", Password: os.Getenv(PasswordVariable), Settings: true})
}
