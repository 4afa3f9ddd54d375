package zklock

import (
	"os"
	"strings"
	"testing"
)

// Whoever uses the ZooKeeper backend never meets the other stores' clients in go.sum.
func TestModuleCarriesNoOtherStoresClient(t *testing.T) {
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) == 0 {
			t.Errorf("%s is empty: nothing was looked at", name)
		}
		for line := range strings.Lines(strings.ToLower(string(text))) {
			for _, word := range []string{
				"etcd", "grpc", "redis", "pgx", "lib/pq", "mysql", "mariadb", "sqlite", "cobra", "sqllock",
			} {
				if strings.Contains(line, word) {
					t.Errorf("%s names %s: %s", name, word, strings.TrimSpace(line))
				}
			}
		}
	}
}
