.DEFAULT_GOAL := help
.PHONY: help build quick test verify versions lint cross bench bench-compare others vuln release release-check clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

build: ## build the command and its lab into bin/, as static binaries
	cd cmd/fencelock && CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -ldflags '-s -w' -o ../../bin/ .
	cd lab && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o ../bin/ ./cmd/fencelock-lab

quick: ## tests that need no server, in about a minute: core, driver, memory, SQLite, fence, elect
	@scripts/quick.sh

test: ## what a pull request needs; installs the servers it needs on Debian as root, says what to install elsewhere
	@scripts/test.sh

verify: ## the proof that takes longer, all but torture and mutants, or WHAT='every torture': parts in verify/README.md
	@scripts/verify.sh $(WHAT)

# Left out: sentinels of Redis 6.0 cannot be told to hurry and undo what tests have them do, and PostgreSQL 13
# counts deadlocks in a process that does not run there.
versions: ## the tests of the stores among the newest and the oldest servers that Debian has; as root there
	scripts/with-debian.sh sid mysql-server-core postgresql pgbouncer redis-server etcd-server zookeeper default-jre-headless -- \
		env FENCELOCK_ETCD=/usr/bin/etcd go test -count=1 -p 1 -timeout 15m ./redislock/... ./zklock/... \
		./verify/sql ./etcdlock ./verify/quorum ./verify/cut ./verify/fence
	scripts/with-debian.sh sid mariadb-server valkey-server -- sh -c \
		'go test -count=1 -p 1 -timeout 15m ./redislock/... && go test -count=1 -run "/^MariaDB$$" ./verify/sql && go test -count=1 -run Redis ./verify/quorum'
	scripts/with-debian.sh sid prometheus redis-server -- go test -count=1 ./verify/observe
	scripts/with-debian.sh bullseye redis-server postgresql pgbouncer -- sh -c "go test -count=1 -p 1 -timeout 15m \
		-skip /sentinel ./redislock/... && go test -count=1 -run '/^(Postgres|PgBouncer)' -skip '^TestDeadlockIsTriedAgain' ./verify/sql \
		&& go test -count=1 -run Redis ./verify/quorum"

lint: ## formatting, golangci-lint, twins of the documentation
	@scripts/lint.sh

cross: ## check the types of everything for Linux on arm64, macOS and Windows
	@scripts/cross.sh

bench: ## compare with raw Redis and with other libraries, in one run
	cd verify && go run ./cmd/bench

bench-compare: ## compare the Go benchmarks with those of the last release, or of REF=commit
	@scripts/bench-compare.sh $(or $(REF),last)

others: ## put locks of other libraries through the same faults, and write their pages; as root on Debian
	@command -v npm >/dev/null || scripts/servers.sh
	cd verify/others/adapters/node && npm ci --no-audit --no-fund
	scripts/with-debian.sh trixie redis-server postgresql mariadb-server zookeeper default-jdk-headless python3-redis \
		python3-kazoo nodejs php-cli php-redis php-symfony-lock libcurator-recipes-java -- \
		sh -c 'cd verify && go run ./cmd/others'

vuln: ## look for known vulnerabilities (asks the Go vulnerability database)
	@cd tools && GOWORK=off go build -o ../bin/govulncheck golang.org/x/vuln/cmd/govulncheck
	@for m in . redislock cmd/fencelock; do (cd $$m && $(CURDIR)/bin/govulncheck ./...) || exit 1; done

release: ## make a release into dist/, as VERSION=v0.9.0; pushes nothing
	@cd tools/release && GOWORK=off go run . "$(VERSION)"

release-check: ## make a release for this platform and try it out as a user; installs its deb for that, as root
	@cd tools/release && GOWORK=off go run . -rehearse $(or $(VERSION),v0.9.0)

clean: ## remove what was built
	rm -rf bin dist
