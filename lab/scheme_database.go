package lab

import (
	"database/sql"
	"fmt"
	"net/url"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of PostgreSQL

	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// database is a PostgreSQL server.
type database struct {
	*stage
	server *testserver.Server
	admin  *sql.DB
}

func (s *stage) postgres() *database {
	d := &database{stage: s, server: s.serve(func(dir string) (*testserver.Server, error) {
		return testserver.StartPostgres(s.ctx, dir)
	})}
	d.admin = d.open("")
	return d
}

// open returns a pool whose connections the server knows by the name of an actor.
func (d *database) open(name string) *sql.DB {
	db, err := sql.Open("pgx", d.server.URL()+"&application_name="+url.QueryEscape(name))
	d.check(err)
	d.closers = append(d.closers, db.Close)
	return db
}

// user connects a process to the database.
func (d *database) user(name string) *user {
	b := sqllock.New(d.open(name), sqllock.Postgres, &sqllock.Options{CreateTables: true})
	onlooker := sqllock.New(d.admin, sqllock.Postgres, nil)
	d.holds = func() []Text { return d.lineOf(onlooker) }
	return d.userOn(b, nil, name, name)
}

// hasSessions reports whether the server has a session of an actor.
func (d *database) hasSessions(name string) bool {
	var n int
	d.check(d.admin.QueryRowContext(d.ctx,
		"SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", name).Scan(&n))
	return n > 0
}

// endsSessions ends the sessions of an actor, as an administrator, a failover or a timeout does.
func (d *database) endsSessions(name string) {
	_, err := d.admin.ExecContext(d.ctx,
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", name)
	d.check(err)
}

// session is an actor with a connection to the database, and what is shown of it.
type session struct {
	*client
	conn *sql.Conn
}

func (d *database) session(name string) session {
	conn, err := d.open(name).Conn(d.ctx)
	d.check(err)
	d.closers = append(d.closers, conn.Close)
	return session{d.client(nil, name), conn}
}

// exec sends a statement and returns how many rows it changed.
func (c session) exec(statement string) int64 {
	r, err := c.conn.ExecContext(c.ctx, statement)
	c.check(err)
	n, err := r.RowsAffected()
	c.check(err)
	if strings.HasPrefix(statement, "UPDATE") {
		c.record(fmt.Sprintf("%s → %d", statement, n))
	} else {
		c.record(statement + " → ok")
	}
	return n
}

// query sends a query and returns its only value.
func (c session) query(statement string) (value string) {
	c.check(c.conn.QueryRowContext(c.ctx, statement).Scan(&value))
	c.record(statement + " → " + value)
	return value
}

// lockRow begins a transaction and locks a row in it.
func (c session) lockRow(*client) bool {
	c.exec("BEGIN")
	return c.query("SELECT name FROM locks WHERE name = 'lock' FOR UPDATE") == "lock"
}

var rowLock = Experiment{
	Breaks: []history.Rule{history.Exclusion},
	scheme: func(s *stage) {
		d := s.postgres()
		d.prepares("CREATE TABLE locks (name text PRIMARY KEY)", "INSERT INTO locks VALUES ('lock')")
		a, b := d.session("A"), d.session("B")
		s.holds = d.lockedRow
		a.step("locks the row; then it uploads a file, without a statement", "锁住这一行，然后上传文件，期间不发语句", func() {
			a.exec("SET idle_in_transaction_session_timeout = '1s'") // that of a server is often 30 s or more
			a.locks(a.lockRow)()
		})
		s.step("the server's timeout for idle transactions ends the session", "空闲事务超时，服务器结束了它的会话", func() {
			s.until("the session of A has ended", func() bool { return !d.hasSessions("A") })
		})
		b.step("locks the row: A and B are both inside", "锁住这一行：A、B 同时在里面", b.locks(b.lockRow))
		a.step("has uploaded, and only now hears of it", "上传完了，这时才知道", func() {
			_, err := a.conn.ExecContext(a.ctx, "COMMIT")
			a.want(err != nil, "a session that has ended committed")
			a.record("COMMIT → connection lost")
		})
	},
	ours: func(s *stage) {
		d := s.postgres()
		a, b := d.user("A"), d.user("B")
		a.ttl = watchedLease
		a.step("takes the lock for 3s; the work takes longer", "拿到锁 3 秒；活儿更长", a.locks)
		s.step("the server ends every session of A", "服务器结束了 A 的全部会话", func() { d.endsSessions("A") })
		s.step("more than 3s pass", "过了 3 秒多", a.outlives)
		b.step("A was renewed over another connection, and holds it", "A 换一条连接续了租，仍然持有", b.refused)
		passesOn(a, b)
	},
}

// prepares runs statements that no actor sends.
func (d *database) prepares(statements ...string) {
	for _, text := range statements {
		_, err := d.admin.ExecContext(d.ctx, text)
		d.check(err)
	}
}

// lockedRow shows whose transaction has locked a row of the table.
func (d *database) lockedRow() (all []Text) {
	rows, err := d.admin.QueryContext(d.ctx, `
		SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE l.relation = 'locks'::regclass AND l.mode = 'RowShareLock' AND l.granted ORDER BY 1`)
	d.check(err)
	defer rows.Close()
	for rows.Next() {
		var name string
		d.check(rows.Scan(&name))
		all = append(all, Text{"row locked by " + name, "行被 " + name + " 锁住"})
	}
	d.check(rows.Err())
	return all
}

// readVersion reads the state of an order, which says that it may be paid.
func (c session) readVersion(*client) bool {
	return c.query("SELECT state || ', version ' || version FROM orders") == "open, version 1"
}

// pays does what no database undoes.
func (c session) pays() { c.record("pay(order) → ok") }

// closes writes the state if nobody else has written it since version 1.
func (c session) closes(want int64) func() {
	return func() {
		c.event(history.Release)
		n := c.exec("UPDATE orders SET state = 'paid', version = 2 WHERE version = 1")
		c.want(n == want, "%s changed %d rows", c.name, n)
		c.event(history.Left)
	}
}

var versionColumn = Experiment{
	Breaks: []history.Rule{history.Exclusion},
	scheme: func(s *stage) {
		d := s.postgres()
		d.prepares("CREATE TABLE orders (state text, version int)", "INSERT INTO orders VALUES ('open', 1)")
		s.holds = func() []Text {
			var text string
			d.check(d.admin.QueryRowContext(d.ctx, "SELECT state || ', version ' || version FROM orders").Scan(&text))
			return []Text{same(text)}
		}
		a, b := d.session("A"), d.session("B")
		a.step("reads the order: it is open", "读订单：未支付", a.locks(a.readVersion))
		b.step("reads it, too: A and B both go ahead", "也读订单：A、B 都往下走", b.locks(b.readVersion))
		a.step("pays", "付款", a.pays)
		b.step("pays: twice by now", "也付款：付了两次", b.pays)
		a.step("writes its result", "写回结果", a.closes(1))
		b.step("finds that it is too late: the money has gone", "这才发现晚了：钱已经付出去", b.closes(0))
	},
	ours: func(s *stage) {
		d := s.postgres()
		a, b := d.user("A"), d.user("B")
		a.step("takes the lock of the order, and reads: it is open", "拿到订单的锁，读订单：未支付", a.locks)
		b.step("wants to pay as well, and is refused", "也要付款，被拒绝", b.refused)
		a.step("pays, and writes its result with its token", "付款，带着 token 写回结果", a.writes)
		a.step("gives it back", "释放", a.releases)
		b.step("takes the lock, and reads: it is paid", "拿到锁，读订单：已支付", b.tries)
	},
}
