// Migration is a deployment: three pods start at once, and each brings the database up to
// date before it serves. One migrates, the others wait and go on. It plays that with
// goose on a real PostgreSQL, also behind PgBouncer in transaction pooling, where session
// locks do not hold, and with a pod that is killed in the middle of a migration; and the
// same with golang-migrate.
//
//	go run .
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver named "pgx"

	"github.com/fencelock/fencelock/internal/testserver"
)

// lease is how long a pod that was killed is missed, at the most.
const lease = time.Second

// deployments are what is played, in order.
var deployments = []struct {
	tool           string
	pooled, killed bool
}{
	{tool: "goose"},
	{tool: "gooselock"},
	{tool: "gooselock", killed: true},
	{tool: "gooselock", pooled: true},
	{tool: "gooselock", pooled: true, killed: true},
	{tool: "migratelock"},
	{tool: "migratelock", killed: true},
}

// title names a deployment.
func title(i int) string {
	d := deployments[i]
	s := d.tool
	if d.tool == "goose" {
		s += " without a lock"
	}
	if d.pooled {
		s += " through PgBouncer"
	}
	if d.killed {
		s += ", one killed"
	}
	return s
}

func main() {
	log.SetFlags(0)
	if len(os.Args) == 4 && os.Args[1] == "pod" {
		if err := pod(context.Background(), os.Args[2], os.Args[3]); err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
		return
	}
	if err := story(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func story(ctx context.Context) error {
	c, err := open(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	fmt.Println("three pods start at once; there are two migrations, the second one takes long")
	for i := range deployments {
		fmt.Printf("\n%s\n", title(i))
		o, err := c.deploy(ctx, i, func(pod, line string) { fmt.Printf("  pod %s %s\n", pod, line) })
		if err != nil {
			return err
		}
		fmt.Printf("  = %s\n", o)
	}
	return nil
}

// cluster is the servers of all deployments. Each deployment has a database of its own.
type cluster struct {
	dir                 string
	postgres, pgbouncer *testserver.Server
	db                  *sql.DB
}

func open(ctx context.Context) (c *cluster, err error) {
	c = &cluster{}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.dir, err = os.MkdirTemp("", "migration"); err != nil {
		return c, err
	}
	if err := os.Chmod(c.dir, 0o755); err != nil { // the servers may run as another user
		return c, err
	}
	dirs := [2]string{filepath.Join(c.dir, "postgres"), filepath.Join(c.dir, "pgbouncer")}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return c, err
		}
	}
	if c.postgres, err = testserver.StartPostgres(ctx, dirs[0]); err != nil {
		return c, err
	}
	if c.pgbouncer, err = testserver.StartPgBouncer(ctx, dirs[1], c.postgres); err != nil {
		return c, err
	}
	c.db, err = sql.Open("pgx", c.postgres.URL())
	return c, err
}

func (c *cluster) close() {
	if c.db != nil {
		c.db.Close()
	}
	for _, s := range []*testserver.Server{c.pgbouncer, c.postgres} {
		if s != nil {
			_ = s.Stop()
		}
	}
	_ = os.RemoveAll(c.dir)
}
