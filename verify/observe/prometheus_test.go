package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/redislock"
)

// patience is how long a test waits for what must happen. It is no measurement.
const patience = time.Minute

const alerts = "../../deploy/prometheus/alerts.yml"

// api asks a Prometheus, and returns the data of its answer.
func api[T any](t *testing.T, server *testserver.Server, path string, query url.Values) (data T) {
	t.Helper()
	answer, err := http.Get(server.URL() + "/api/v1/" + path + "?" + query.Encode())
	must(t, err)
	defer answer.Body.Close()
	var body struct {
		Status, Error string
		Data          T
	}
	must(t, json.NewDecoder(answer.Body).Decode(&body))
	if body.Status != "success" {
		t.Fatalf("%s %v: %s", path, query, body.Error)
	}
	return body.Data
}

// series is the answer to a query.
type series struct {
	Result []struct {
		Metric map[string]string
		Value  [2]any
	}
}

func query(t *testing.T, server *testserver.Server, expr string) series {
	t.Helper()
	return api[series](t, server, "query", url.Values{"query": {expr}})
}

// eventually asks until the answer is as it must be.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testserver.Eventually(t, patience, what, ok)
}

// sees waits until the expression, a comparison, is true of something.
func sees(t *testing.T, server *testserver.Server, expr string) {
	t.Helper()
	eventually(t, expr, func() bool { return len(query(t, server, expr).Result) > 0 })
}

// scraping starts a Prometheus that scrapes the workers and has the alerts.
func scraping(t *testing.T, workers ...*worker) *testserver.Server {
	t.Helper()
	rules, err := filepath.Abs(alerts)
	must(t, err)
	var targets []string
	for _, w := range workers {
		targets = append(targets, w.addr)
	}
	return testserver.Prometheus(t, testserver.Config(
		"global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}",
		fmt.Sprintf("rule_files: [%q]", rules),
		"scrape_configs:",
		"  - job_name: workers",
		fmt.Sprintf("    static_configs: [{targets: [%s]}]", strings.Join(targets, ", ")),
	))
}

// Two processes take turns with a lock, and one of them loses it. A Prometheus sees the
// holder, the waiter, the loss and its alert, and every panel of the dashboard has an answer.
func TestPrometheusSeesWhatProcessesDo(t *testing.T) {
	store := testserver.Redis(t)
	a, b := startWorker(t, store.URL(), "web-1"), startWorker(t, store.URL(), "web-2")
	server := scraping(t, a, b)

	a.order("lock orders/42")
	sees(t, server, fmt.Sprintf(`fencelock_held{kind="exclusive",instance=%q} == 1`, a.addr))
	sees(t, server, fmt.Sprintf(`fencelock_renewals_total{instance=%q} > 0`, a.addr))
	b.order("lock orders/42")
	sees(t, server, fmt.Sprintf(`fencelock_waiting{kind="exclusive",instance=%q} == 1`, b.addr))
	sees(t, server, fmt.Sprintf(`fencelock_oldest_wait_seconds{instance=%q} > 0.5`, b.addr))
	breakHolder(t, store.URL(), "orders/42")
	sees(t, server, fmt.Sprintf(`fencelock_losses_total{cause="broken",instance=%q} == 1`, a.addr))
	sees(t, server, fmt.Sprintf(`fencelock_held{kind="exclusive",instance=%q} == 1`, b.addr))
	sees(t, server, fmt.Sprintf(`fencelock_wait_seconds_sum{result="acquired",instance=%q} > 0.5`, b.addr))
	b.order("release orders/42")
	sees(t, server, fmt.Sprintf(`fencelock_hold_seconds_count{result="released",instance=%q} == 1`, b.addr))
	sees(t, server, `sum(fencelock_held) == 0`)

	eventually(t, "the alert of the loss", func() bool {
		firing := api[struct {
			Alerts []struct {
				Labels map[string]string
				State  string
			}
		}](t, server, "alerts", nil)
		for _, alert := range firing.Alerts {
			if alert.Labels["alertname"] == "FencelockLost" && alert.Labels["instance"] == a.addr && alert.State == "firing" {
				return true
			}
		}
		return false
	})
	checkDashboard(t, server)
}

// client returns a Client on a store of the tests.
func client(t *testing.T, store string) *fencelock.Client {
	t.Helper()
	opts, err := redis.ParseURL(store)
	must(t, err)
	rdb := redis.NewClient(opts)
	locks := testclient.New(t, redislock.New(rdb, nil), nil)
	t.Cleanup(func() {
		_ = locks.Close()
		_ = rdb.Close()
	})
	return locks
}

// breakHolder ends the claim of whoever holds key.
func breakHolder(t *testing.T, store, key string) {
	t.Helper()
	locks := client(t, store)
	line, err := locks.Line(context.Background(), key)
	must(t, err)
	if len(line.Claims) == 0 || !line.Claims[0].Granted {
		t.Fatalf("%s is held by %+v", key, line.Claims)
	}
	must(t, locks.Break(context.Background(), key, line.Claims[0].Token, fencelock.Break{Reason: "for the test"}))
}

// checkDashboard asks what the panels ask.
func checkDashboard(t *testing.T, server *testserver.Server) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/fencelock.json")
	must(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal(text, &dashboard))
	if len(dashboard.Panels) < 10 {
		t.Errorf("the dashboard has %d panels", len(dashboard.Panels))
	}
	of := strings.NewReplacer("$instance", ".*", "$__rate_interval", "1m")
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			if strings.Contains(target.Expr, "at_risk_total") || strings.Contains(target.Expr, "store_errors_total") ||
				strings.Contains(target.Expr, "handoffs_total") {
				query(t, server, of.Replace(target.Expr)) // nothing of the kind has happened
				continue
			}
			// A rate has an answer when its series was scraped twice.
			eventually(t, fmt.Sprintf("an answer for the panel %q to %s", p.Title, target.Expr), func() bool {
				return len(query(t, server, of.Replace(target.Expr)).Result) > 0
			})
		}
	}
}

// The alerts fire when they must, and only then, by promtool's own tests of rules.
func TestAlerts(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = filepath.Dir(alerts)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
