// Plays ../../conformance/cases.json; its README.md has the steps.
//
//	cd verify && go test -count=1 ./languages -run /typescript
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { Client, FencelockError, Lease, NotAcquired, type AcquireOptions } from "../src/index.js";

type Step = Record<string, any>;

const { CONFORMANCE_CASES, CONFORMANCE_SERVER, CONFORMANCE_FAULTS, CONFORMANCE_PID } = process.env;
const server = CONFORMANCE_SERVER ?? "";
const patience = 60_000; // for what must happen

/** Plays one case. */
class Player {
  readonly client = new Client(server);
  readonly leases = new Map<string, Lease>();
  readonly started = new Map<string, { lease: Promise<Lease>; controller: AbortController }>();

  constructor(readonly key: string) {}

  async play(steps: Step[]): Promise<void> {
    try {
      for (const step of steps) await this.step(step);
    } finally {
      process.kill(Number(CONFORMANCE_PID), "SIGCONT");
      for (const lease of this.leases.values()) await lease.release().catch(() => {});
    }
  }

  async step(step: Step): Promise<void> {
    const about = JSON.stringify(step);
    const verb = this.verbs[step["do"]];
    assert(verb, `${about}: no such step`);
    try {
      await verb(step, about);
    } catch (error) {
      if (!(error instanceof FencelockError)) throw error;
      assert.equal(error.slug, step["expect"], `${about}: ${error}`);
      if (step["holder"]) {
        assert(error instanceof NotAcquired, about);
        const { owner, note } = error.holders[0]!;
        assert.deepEqual({ owner, note }, step["holder"], about);
      }
      return;
    }
    assert.equal(step["expect"], undefined, `${about} went well`);
  }

  lease(step: Step): Lease {
    return this.leases.get(step["lease"])!;
  }

  all(step: Step): Lease[] {
    return step["leases"].map((name: string) => this.leases.get(name));
  }

  acquire(step: Step, signal?: AbortSignal): Promise<Lease> {
    const { kind, permits, size, note, owner, request_id: requestId, ttl_ms: ttl, wait_ms: wait, through } = step;
    const options = { kind, permits, size, note, owner, requestId, ttl, wait, signal };
    const named = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
    const at = (name: string) => (name === "server" ? server : `${CONFORMANCE_FAULTS}/${name}`);
    const timeout = step["expect"] === "unavailable" ? 2000 : patience;
    const client = through ? new Client(through.map(at), { timeout }) : this.client;
    return client.acquire(this.key, named as AcquireOptions);
  }

  readonly verbs: Record<string, (step: Step, about: string) => unknown> = {
    acquire: async (step) => this.leases.set(step["lease"], await this.acquire(step)),
    start: (step) => {
      const controller = new AbortController();
      const lease = this.acquire(step, controller.signal);
      lease.catch(() => {}); // finish tells
      this.started.set(step["lease"], { lease, controller });
    },
    finish: async (step) => this.leases.set(step["lease"], await this.started.get(step["lease"])!.lease),
    cancel: async (step) => {
      const { lease, controller } = this.started.get(step["lease"])!;
      controller.abort();
      await assert.rejects(lease, { name: "AbortError" });
    },
    line: async (step, about) => {
      const end = performance.now() + patience;
      const want = { holders: step["holders"], waiters: step["waiters"] };
      for (;;) {
        const { holders, waiters } = await this.client.line(this.key);
        const seen = { holders: holders.map((s) => s.owner), waiters: waiters.map((s) => s.owner) };
        if (JSON.stringify(seen) === JSON.stringify(want)) return;
        if (performance.now() > end) assert.deepEqual(seen, want, about);
        await after(20);
      }
    },
    check: (step) => this.lease(step).check(),
    release: async (step) => {
      await this.lease(step).release();
      await this.lease(step).release(); // does nothing
    },
    outlives: async (step, about) => {
      assert(!(await lost(this.lease(step), step["ms"])), about);
      this.lease(step).check();
    },
    lost: async (step, about) => {
      assert(await lost(this.lease(step), patience), about);
      const reason = String(this.lease(step).signal.reason);
      assert(reason.includes(step["reason"]), `${about}: ${reason}`);
      assert.throws(() => this.lease(step).check(), { name: "LeaseLost" });
    },
    break: (step) => {
      const options = { notice: step["notice_ms"] ?? 0 };
      return this.client.breakClaim(this.key, this.lease(step).token, step["reason"], options);
    },
    revoked: async (step, about) => {
      const { revoked } = this.lease(step);
      const end = performance.now() + patience;
      while (!revoked.aborted && performance.now() < end) await after(20);
      assert.equal(revoked.reason, step["reason"], about);
      this.lease(step).check();
    },
    rises: (step, about) =>
      this.all(step).reduce((before, lease) => {
        assert(BigInt(before.token) < BigInt(lease.token), `${about}: ${before.token}, ${lease.token}`);
        return lease;
      }),
    same: (step) =>
      this.all(step).reduce((before, lease) => {
        assert.deepEqual([before.token, before.handle], [lease.token, lease.handle]);
        return lease;
      }),
    once: async (step, about) => {
      let ran = false;
      const work = (lease: Lease) => {
        lease.check();
        ran = true;
        if (step["work"] === "fails") throw new RangeError("the work fails");
      };
      const said = this.client.once(this.key, step["slot"], work, { owner: step["owner"] });
      if (step["work"] === "fails") await assert.rejects(said, RangeError, about);
      else assert.equal(await said, step["ran"], about);
      assert.equal(ran, step["ran"], about);
    },
    post: async (step, about) => {
      const fill = (value: unknown) =>
        value === "$k" ? this.key : /^\$./.test(`${value}`) ? this.leases.get(`${value}`.slice(1))!.handle : value;
      const body = Object.fromEntries(Object.entries(step["body"]).map(([name, value]) => [name, fill(value)]));
      const headers = { "Content-Type": "application/json" };
      const response = await fetch(server + step["path"], { method: "POST", headers, body: JSON.stringify(body) });
      const problem = (await response.json()) as Step;
      assert.equal(response.status, step["status"], `${about}: ${JSON.stringify(problem)}`);
      if (step["problem"]) assert.equal(problem["type"], `/problems/${step["problem"]}`, about);
    },
    freeze: () => process.kill(Number(CONFORMANCE_PID), "SIGSTOP"),
    thaw: () => process.kill(Number(CONFORMANCE_PID), "SIGCONT"),
  };
}

function after(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Whether the lease tells its loss within ms. */
function lost(lease: Lease, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    if (lease.signal.aborted) return resolve(true);
    lease.signal.addEventListener("abort", () => resolve(true));
    setTimeout(() => resolve(false), ms);
  });
}

if (!CONFORMANCE_SERVER) {
  test("conformance", { skip: "started by: cd verify && go test -count=1 ./languages" }, () => {});
} else {
  const file = CONFORMANCE_CASES ?? "../conformance/cases.json";
  JSON.parse(readFileSync(file, "utf8")).cases.forEach((each: Step, number: number) =>
    test(each["name"], async () => {
      for (const [i, key] of (each["each_key"] ?? ["k"]).entries()) {
        await new Player(`typescript/${number}/${i}/${key}`).play(each["steps"]);
      }
      console.log(`played Client: ${each["name"]}`);
    }),
  );
}
