// The rules of the protocol by a clock and a fetch of the test's own: no server.
//
//	npm ci && npm run build && node --test dist/test/protocol.js
import assert from "node:assert/strict";
import { afterEach, mock, test } from "node:test";
import { Client, FencelockError, LeaseLost, NotAcquired, Unavailable } from "../src/index.js";
import type { AcquireOptions, Lease } from "../src/index.js";

const grant = { key: "k", handle: "h", token: "7", ttl_ms: 30_000, left_ms: 30_000, waited_ms: 0, request_id: "r" };

type Request = { url: string; body: any; headers: Record<string, string> };
type Reply = [status: number, body: object, retryAfter?: string] | Error;

const leases: Lease[] = [];
afterEach(async () => {
  for (const lease of leases.splice(0)) await lease.release().catch(() => {}); // it would renew into the next test
});

/** Acquires the key with a client of that server. */
async function acquire(server: string, options: AcquireOptions = {}): Promise<Lease> {
  const lease = await new Client(server).acquire("k", options);
  leases.push(lease);
  return lease;
}

/** Lets `answer` answer every request; what time it takes, it adds to the clock. */
function world(answer: (request: Request, clock: { now: number }) => Reply) {
  const clock = { now: 1000 };
  const requests: Request[] = [];
  mock.restoreAll();
  mock.method(performance, "now", () => clock.now);
  mock.method(globalThis, "fetch", async (url: string, init: RequestInit) => {
    const headers = init.headers as Record<string, string>;
    const request = { url, body: JSON.parse(String(init.body ?? "null")), headers };
    requests.push(request);
    const reply = answer(request, clock);
    if (reply instanceof Error) throw reply;
    const more: HeadersInit = reply[2] ? { "Retry-After": reply[2] } : {};
    return new Response(JSON.stringify(reply[1]), { status: reply[0], headers: more });
  });
  return { clock, requests };
}

function problem(status: number, slug: string, more: object = {}): Reply {
  return [status, { type: `/problems/${slug}`, detail: slug, ...more }];
}

test("the deadline counts from before the request was sent", async () => {
  world((_, clock) => ((clock.now += 4000), [200, grant]));
  assert.equal((await acquire("http://one")).left, 26_000);
});

test("the deadline counts from the grant if the request waited in line", async () => {
  world((_, clock) => ((clock.now += 50_000), [200, { ...grant, waited_ms: 49_000 }]));
  assert.equal((await acquire("http://one", { wait: 60_000 })).left, 29_000);
});

test("a wait that is longer than the request moves no deadline", async () => {
  world((_, clock) => ((clock.now += 1000), [200, { ...grant, waited_ms: 3_600_000 }]));
  assert.equal((await acquire("http://one")).left, 30_000);
});

test("the own clock ends the lease", async () => {
  const { clock } = world(() => [200, grant]);
  const lease = await acquire("http://one");
  clock.now += 29_999;
  lease.check();
  assert(!lease.signal.aborted);
  clock.now += 1;
  assert.throws(() => lease.check(), LeaseLost);
  assert(lease.signal.reason instanceof LeaseLost);
  await assert.rejects(lease.release(), /not renewed in time/);
});

test("a renewal counts from its sending", async () => {
  let done = () => {};
  const answered = new Promise<void>((resolve) => (done = resolve));
  const { clock } = world((request, clock) => {
    if (!request.url.endsWith("/renew")) return [200, { ...grant, ttl_ms: 60, left_ms: 60 }];
    clock.now += 3000;
    setImmediate(done);
    return [200, { key: "k", token: "7", left_ms: 30_000 }];
  });
  const lease = await acquire("http://one", { ttl: 60 });
  clock.now += 20; // a third of the lease
  const alive = setInterval(() => {}, 1000); // the lease's own timers keep nothing running
  await answered;
  clearInterval(alive);
  assert.equal(lease.left, 27_000);
  await assert.doesNotReject(async () => lease.check());
});

test("a wait is cut into polls of one claim", async () => {
  const { requests } = world(({ body }, clock) => {
    clock.now += Number.parseInt(body.wait);
    return body.stay ? problem(503, "come-again") : problem(409, "not-acquired", { holders: [] });
  });
  await assert.rejects(new Client("http://one").acquire("k", { wait: 130_000 }), NotAcquired);
  assert.deepEqual(requests.map(({ body }) => body.stay ?? false), [true, true, false]);
  assert.equal(new Set(requests.map(({ body }) => body.request_id)).size, 1);
});

test("a repeated request for a slot says how old it is", async () => {
  let first = true;
  const { requests } = world((_, clock) => {
    if (!first) return problem(409, "not-acquired", { holders: [] });
    first = false;
    clock.now += 5000;
    return new TypeError("cut");
  });
  const once = new Client(["http://one", "http://two"]).once("k", "1h", () => {}, { wait: 60_000 });
  await assert.rejects(once, NotAcquired);
  assert.deepEqual(requests.map(({ body }) => [body.slot, body.since]), [["1h", undefined], ["1h", "5000ms"]]);
});

test("the next server is asked at once", async () => {
  const refused = (url: string) => url.startsWith("http://one");
  const { requests } = world(({ url }) => (refused(url) ? new TypeError("refused") : [200, { key: "k" }]));
  const client = new Client(["http://one/", "http://two/locks"]);
  await client.line("a b");
  await client.line("k");
  assert.deepEqual(
    requests.map(({ url }) => url),
    ["http://one/v1/line?key=a+b", "http://two/locks/v1/line?key=a+b", "http://two/locks/v1/line?key=k"],
  );
});

test("a wait ends at once when the store refuses for good", async () => {
  let first = true;
  const { requests } = world(() => {
    const slug = first ? "refused-for-now" : "refused";
    first = false;
    return problem(503, slug);
  });
  await assert.rejects(new Client("http://one").acquire("k", { wait: 60_000 }), { slug: "refused" });
  assert.equal(requests.length, 2);
});

test("what no fencelock answered is unavailable, in time", async () => {
  const { clock } = world((_, clock) => ((clock.now += 500), [502, {}]));
  await assert.rejects(new Client("http://one", { timeout: 3000 }).acquire("k"), Unavailable);
  assert(clock.now <= 4500, `${clock.now}`);
});

test("the token does not go from https to http, and circles end", async () => {
  for (const instance of ["http://three", "ftp://three", "three", "https://", ""]) {
    const { requests } = world(() => problem(421, "misdirected", { instance }));
    await assert.rejects(new Client("https://one", { token: "secret" }).acquire("k"), FencelockError);
    assert.equal(requests.length, 1);
    assert.equal(requests[0]!.headers["Authorization"], "Bearer secret");
  }
  const { requests } = world(() => problem(421, "misdirected", { instance: "https://three" }));
  await assert.rejects(new Client("https://one").acquire("k"), { slug: "misdirected" });
  assert(requests.length < 10);
});

test("a handle that is gone was released if an attempt before had no answer, and lost otherwise", async () => {
  let fail = true;
  world(({ url }) => {
    if (!url.endsWith("/release")) return [200, grant];
    return fail ? ((fail = false), new TypeError("cut")) : problem(410, "lost", { reason: "released" });
  });
  await (await acquire("http://one")).release();
  await assert.rejects((await acquire("http://one")).release(), LeaseLost);
});

/** A server that does not answer the first requests of a release. */
function failing(ways: number) {
  const bodies: any[] = [];
  const seen = world(({ url, body }, clock) => {
    if (!url.endsWith("/release")) return [200, { ...grant, slot: "ever" }];
    bodies.push(body);
    if (bodies.length > ways) return [200, { released: true }];
    clock.now += 500;
    return new TypeError("cut");
  });
  return { ...seen, bodies };
}

test("a release that failed is sent again by the second call, and the third does nothing", async () => {
  const { bodies } = failing(2);
  const client = new Client("http://one", { timeout: 800 });
  const lease = await client.acquire("k");
  await assert.rejects(lease.release("ever"), Unavailable);
  const failed = bodies.length;
  await lease.release();
  assert.equal(bodies.length, failed + 1);
  assert.deepEqual(new Set(bodies.map(({ done }) => done)), new Set(["ever"]));
  await lease.release();
  assert.equal(bodies.length, failed + 1);
});

test("a release that failed is sent again in the background", async () => {
  const { bodies } = failing(2);
  const client = new Client("http://one", { timeout: 800 });
  const lease = await client.acquire("k");
  await assert.rejects(lease.release(), Unavailable);
  const failed = bodies.length;
  while (bodies.length === failed) await new Promise((resolve) => setTimeout(resolve, 10));
  await lease.release();
  assert.equal(bodies.length, failed + 1);
});

test("once whose release fails rejects, and notes the slot in the background", async () => {
  const { bodies } = failing(2);
  const client = new Client("http://one", { timeout: 800 });
  await assert.rejects(client.once("k", "ever", () => {}), Unavailable);
  const failed = bodies.length;
  while (bodies.length === failed) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.deepEqual(new Set(bodies.map(({ done }) => done)), new Set(["ever"]));
});

test("once whose slot was not noted rejects", async () => {
  let fail = true;
  world(({ url }) => {
    if (!url.endsWith("/release")) return [200, { ...grant, slot: "ever" }];
    return fail ? ((fail = false), new TypeError("cut")) : problem(410, "lost", { reason: "it ran out" });
  });
  await assert.rejects(new Client("http://one").once("k", "ever", () => {}), LeaseLost);
});

test("work that releases its lease has done no slot", async () => {
  world(({ url }) => [200, url.endsWith("/release") ? { released: true } : { ...grant, slot: "ever" }]);
  await assert.rejects(new Client("http://one").once("k", "ever", (lease) => lease.release()), LeaseLost);
});

test("a release that was refused is refused again", async () => {
  world(({ url }) => (url.endsWith("/release") ? problem(410, "lost", { reason: "broken" }) : [200, grant]));
  const lease = await acquire("http://one");
  await assert.rejects(lease.release(), LeaseLost);
  await assert.rejects(lease.release(), LeaseLost);
});

test("a token that is no header, and a password in a URL, are refused and not shown", () => {
  const hidden = (error: unknown) => error instanceof TypeError && !`${error.stack}`.includes("secret");
  for (const token of ["secret\r\nX-Admin: 1", "secret\n", " secret", "two secrets", "s\u00e9cret secret"]) {
    assert.throws(() => new Client("http://one", { token }), hidden);
  }
  assert.throws(() => new Client("http://user:secret@one"), hidden);
  process.env["FENCELOCK_SERVE_TOKEN"] = "secret\n";
  try {
    new Client("http://one");
  } finally {
    delete process.env["FENCELOCK_SERVE_TOKEN"];
  }
});

test("an option that there is not is refused, and nothing is sent", async () => {
  const { requests } = world(() => [200, grant]);
  const client = new Client("http://one");
  const misspelt = { request_id: "r-of-this-wish" } as AcquireOptions; // as HTTP calls it
  await assert.rejects(client.acquire("k", misspelt), /TypeError.*request_id/);
  await assert.rejects(client.withLock("k", misspelt, () => {}), /TypeError.*request_id/);
  await assert.rejects(client.once("k", "1h", () => {}, misspelt), /TypeError.*request_id/);
  assert.throws(() => new Client("http://one", { timeOut: 5 } as object), /TypeError.*timeOut/);
  assert.equal(requests.length, 0);
});

test("a wrong address is said at once", () => {
  for (const servers of [[], "127.0.0.1:7533", "http://"]) assert.throws(() => new Client(servers), TypeError);
});
