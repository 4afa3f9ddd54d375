// Inventory is a flash sale: three instances of a shop sell the same fifty pieces, which
// a MySQL or MariaDB counts. It plays the sale without a lock, with the lock that tutorials
// teach, with a watchdog, with one conditional UPDATE, with one script in Redis, and with a
// lock and a guard, and counts what was sold.
//
//	go run ./inventory
//	go run ./inventory -runs 200
//
// In each run one instance is stopped in the middle of a sale, as a virtual machine that
// is moved or a long garbage collection does, and another one is killed.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"log"
	"os"

	_ "github.com/go-sql-driver/mysql" // the driver named "mysql"

	"github.com/fencelock/fencelock/internal/testserver"
)

// pieces is how many there are to sell.
const pieces = 50

func main() {
	log.SetFlags(0)
	if len(os.Args) > 1 && os.Args[1] == "instance" {
		if err := instance(os.Args[2], os.Args[3], os.Args[4], os.Args[5] == "slowly"); err != nil {
			log.Fatal(err)
		}
		return
	}
	runs := flag.Int("runs", 5, "how many sales to play for each kind of lock")
	flag.Parse()
	if err := story(*runs); err != nil {
		log.Fatal(err)
	}
}

func story(runs int) error {
	shop, err := open(context.Background())
	if err != nil {
		return err
	}
	defer shop.close()
	fmt.Printf("three instances sell %d pieces, %d times; one is stopped in mid-sale, one is killed\n\n", pieces, runs)
	for _, k := range kinds {
		oversold, most := 0, 0
		for range runs {
			sold, _, err := shop.sale(context.Background(), k.name, pieces, true)
			if err != nil {
				return err
			}
			if sold > pieces {
				oversold++
			}
			most = max(most, sold)
		}
		fmt.Printf("%-12s oversold in %d of %d sales, %d sold at the most: %s\n", k.name, oversold, runs, most, k.why)
	}
	fmt.Printf("\nundisturbed, %d pieces, and no pause between reading and writing:\n", 20*pieces)
	for _, k := range kinds {
		if !k.right {
			continue
		}
		sold, took, err := shop.sale(context.Background(), k.name, 20*pieces, false)
		if err != nil {
			return err
		}
		fmt.Printf("%-12s %.0f pieces a second\n", k.name, float64(sold)/took.Seconds())
	}
	return nil
}

// kinds are the ways to sell, in order. A right one never sells more than there is.
var kinds = []struct {
	name  string
	right bool
	why   string
}{
	{"no-lock", false, "two read the same number and write the same number less one"},
	{"tutorial", false, "SET NX PX with an owner; a stopped instance wakes up after its lock has ended, " +
		"and writes what it had read"},
	{"watchdog", false, "the same lock, renewed by a goroutine, which is stopped with its process"},
	{"update", true, "one conditional UPDATE reads and writes in one step"},
	{"script", true, "one script in Redis does, and the orders are copied to the database"},
	{"fencelock", true, "the row sees the token before it is read; a stopped instance writes, too, " +
		"and the row refuses it"},
}

// shop is the servers and the tables of a sale.
type shop struct {
	dir          string
	mysql, redis *testserver.Server
	db           *sql.DB
}

var tables = []string{
	"CREATE TABLE stock (id INT PRIMARY KEY, pieces INT NOT NULL, fence BIGINT NOT NULL)",
	"CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, buyer VARCHAR(64) NOT NULL UNIQUE, " +
		"token BIGINT NOT NULL)",
	"INSERT INTO stock VALUES (1, 0, 0)",
}

func open(ctx context.Context) (s *shop, err error) {
	s = &shop{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "inventory"); err != nil {
		return s, err
	}
	if err := os.Chmod(s.dir, 0o755); err != nil { // mariadbd may run as another user
		return s, err
	}
	for name, start := range map[string]func(string) error{
		"mysql": func(dir string) (err error) { s.mysql, err = testserver.StartMariaDB(ctx, dir); return err },
		"redis": func(dir string) (err error) { s.redis, err = testserver.StartRedis(ctx, dir); return err },
	} {
		dir := s.dir + "/" + name
		if err := os.Mkdir(dir, 0o755); err != nil {
			return s, err
		}
		if err := start(dir); err != nil {
			return s, err
		}
	}
	if s.db, err = sql.Open("mysql", s.dsn()); err != nil {
		return s, err
	}
	for _, q := range tables {
		if _, err := s.db.ExecContext(ctx, q); err != nil {
			return s, err
		}
	}
	return s, nil
}

// dsn names the database as the driver does. A row that stays as it was counts, too: a token may be
// shown twice.
func (s *shop) dsn() string { return "root@tcp(" + s.mysql.Addr() + ")/locks?clientFoundRows=true" }

func (s *shop) close() {
	if s.db != nil {
		s.db.Close()
	}
	for _, server := range []*testserver.Server{s.mysql, s.redis} {
		if server != nil {
			_ = server.Stop()
		}
	}
	_ = os.RemoveAll(s.dir)
}
