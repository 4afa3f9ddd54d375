// What blocks of JavaScript see of a lease, against a real server.
//
//	cd verify && go test -count=1 ./languages -run /typescript
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { setTimeout as after } from "node:timers/promises";
import { test } from "node:test";
import { Client, LeaseLost, type Lease } from "../src/index.js";

const server = process.env["CONFORMANCE_SERVER"] ?? "";
const skip = server ? false : "started by: cd verify && go test -count=1 ./languages";
const client = server ? new Client(server) : (undefined as unknown as Client);
const fresh = () => `blocks/${randomUUID()}`;
const held = async (key: string) => (await client.line(key)).holders.length;
const lose = (lease: Lease) => client.breakClaim(lease.key, lease.token, "enough");

test("withLock releases, and passes on results and errors", { skip }, async () => {
  const key = fresh();
  let signal: AbortSignal | undefined;
  const result = await client.withLock(key, {}, async (lease) => {
    signal = lease.signal;
    assert.equal(await held(key), 1);
    return 42;
  });
  assert.equal(result, 42);
  assert.equal(await held(key), 0);
  assert.equal(signal?.reason.reason, "released");
  const work = () => {
    throw new RangeError("the work fails");
  };
  await assert.rejects(client.withLock(key, {}, work), RangeError);
  assert.equal(await held(key), 0);
});

test("the loss aborts the signal, and withLock rejects with it", { skip }, async () => {
  const work = async (lease: Lease) => {
    await lose(lease);
    await after(30_000, undefined, { signal: lease.signal }); // rejects with AbortError
  };
  await assert.rejects(client.withLock(fresh(), { ttl: 1200 }, work), (error) => {
    return error instanceof LeaseLost && error.reason.includes("enough");
  });
});

test("withLock rejects if the lease was broken before anybody noticed", { skip }, async () => {
  await assert.rejects(client.withLock(fresh(), {}, lose), LeaseLost);
});

test("await using releases", { skip }, async () => {
  const key = fresh();
  {
    await using lease = await client.acquire(key);
    assert.equal(await held(key), 1);
    lease.check();
  }
  assert.equal(await held(key), 0);
});

test("a slot whose lease was lost is not done", { skip }, async () => {
  const key = fresh();
  await assert.rejects(client.once(key, "ever", lose), LeaseLost);
  assert.equal(await client.once(key, "ever", () => {}), true);
  assert.equal(await client.once(key, "ever", () => assert.fail("done twice")), false);
});

test("a lease keeps no process alive", { skip }, async () => {
  const { execFile } = await import("node:child_process");
  const { promisify } = await import("node:util");
  const code = `import { Client } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
    await new Client(${JSON.stringify(server)}).acquire(${JSON.stringify(fresh())}, { ttl: 60_000 });
    console.log("acquired");`;
  const node = promisify(execFile)(process.execPath, ["--input-type=module", "-e", code], { timeout: 15_000 });
  const { stdout } = await node;
  assert.equal(stdout.trim(), "acquired");
});

test("many calls share one signal without a warning", { skip }, async () => {
  const warned: Error[] = [];
  process.on("warning", (warning) => warned.push(warning));
  const key = fresh();
  const lease = await client.acquire(key);
  const shutdown = new AbortController();
  const calls = Array.from({ length: 15 }, () => client.acquire(key, { wait: 60_000, signal: shutdown.signal }));
  const ends = Promise.allSettled(calls);
  while ((await client.line(key)).waiters.length < calls.length) await after(10);
  shutdown.abort();
  assert.ok((await ends).every((end) => end.status === "rejected" && end.reason.name === "AbortError"));
  await lease.release();
  assert.deepEqual(warned.filter((warning) => warning.name === "MaxListenersExceededWarning"), []);
});

test("a lease that a busy program lost says so", { skip }, async () => {
  const lost = client.withLock(fresh(), { ttl: 1000 }, (lease) => {
    while (lease.left > 0); // no timer runs meanwhile
  });
  await assert.rejects(lost, (error) => error instanceof LeaseLost && error.reason.includes("too busy"));
});
