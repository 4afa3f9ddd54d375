/**
 * Locks with leases, waiting in line and fencing tokens, over `fencelock serve`.
 * All times are in milliseconds.
 */

type JSONObject = Record<string, any>;

/** How many milliseconds of waiting one request asks for; the server allows five minutes. */
const POLL = 60_000;
/** How many servers in a row may name another one. */
const HOPS = 5;
/** The longest time that setTimeout takes. */
const LONGEST = 2 ** 31 - 1;

/** Why a lease that no renewal was sent for has ended. */
const BUSY = "the program was too busy to send a renewal";

const now = (): number => performance.now();

/** A request was refused, or its outcome is unknown. `problem` is the server's answer, `slug` its type. */
export class FencelockError extends Error {
  /** An earlier attempt of the same request had no answer. */
  unsure = false;
  constructor(
    message: string,
    readonly slug = "",
    readonly problem: JSONObject = {},
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** Others hold the key; `holders` says who. */
export class NotAcquired extends FencelockError {
  get holders(): Standing[] {
    return this.problem["holders"] ?? [];
  }
}

/** The lease ended before its release, for this `reason`; somebody else may hold the key. */
export class LeaseLost extends FencelockError {
  get reason(): string {
    return this.problem["reason"] ?? this.message;
  }
}

/**
 * No server answered, or its store did not, or the store refused. With the slug `refused-for-now` or `refused`
 * the request did nothing, else the outcome is unknown: a grant ends with its ttl.
 */
export class Unavailable extends FencelockError {}

/** The token is missing or unknown, or does not allow this verb or key. */
export class Forbidden extends FencelockError {}

/** The request cannot succeed as it is. */
export class InvalidRequest extends FencelockError {}

/** The key is in use as another kind, or with another size. */
export class WrongKind extends InvalidRequest {}

/** A later slot is done, so `slot` cannot run any more. Whether it was done before is not known. */
export class SlotPassed extends FencelockError {
  get slot(): string {
    return this.problem["slot"] ?? "";
  }
  /** The last slot that is done. */
  get doneSlot(): string {
    return this.problem["done_slot"] ?? "";
  }
}

/** No claim of that key has the token. */
export class NoClaim extends FencelockError {}

/** The server's limit of claims for this principal is reached. */
export class TooMany extends FencelockError {}

const classes: Record<string, typeof FencelockError> = {
  "not-acquired": NotAcquired,
  lost: LeaseLost,
  "come-again": Unavailable,
  forbidden: Forbidden,
  unauthenticated: Forbidden,
  "wrong-kind": WrongKind,
  "no-claim": NoClaim,
  "slot-passed": SlotPassed,
  "too-many": TooMany,
};

/** One claim as others see it. */
export interface Standing {
  token: string;
  owner: string;
  note: string;
  /** Of a claim of once: the slot that it is for. */
  slot?: string;
  kind: string;
  permits?: number;
  since: string;
  left_ms: number;
  lingering?: boolean;
}

/** Who holds a key and who waits for it, in order. */
export interface Line {
  key: string;
  kind: string;
  size?: number;
  last_token?: string;
  holders: Standing[];
  waiters: Standing[];
  last_run?: JSONObject;
}

export interface ClientOptions {
  /** The bearer token; FENCELOCK_SERVE_TOKEN if it is not named. */
  token?: string;
  /** How long a call without an answer goes on after its wait is over, before it is Unavailable: 10,000. */
  timeout?: number;
}

export interface OnceOptions {
  /** How long the lease lives without a renewal: 30,000. */
  ttl?: number;
  /** How long to wait in line: 0. Infinity: forever. */
  wait?: number;
  /** Shown to those who look at the line. */
  note?: string;
  owner?: string;
  /** Ends the waiting; the claim leaves the line. */
  signal?: AbortSignal;
}

export interface AcquireOptions extends OnceOptions {
  kind?: "exclusive" | "shared" | "permits";
  permits?: number;
  size?: number;
  /** Names the claim: a repeated request with the same name is the same claim. */
  requestId?: string;
}

export interface BreakOptions {
  /** How long the holder keeps the key, to finish its work: 0. */
  notice?: number;
  /** How long the key stays closed after the end: as the lease says. 0: not at all. */
  delay?: number;
}

interface Call {
  wait?: number | undefined;
  limit?: number;
  base?: string;
  signal?: AbortSignal | undefined;
}

interface Reply {
  data: JSONObject;
  sent: number;
  base: string;
}

/** Locks of a `fencelock serve`. Several servers are base URLs of one service, tried in turn. */
export class Client {
  readonly #bases: string[];
  readonly #timeout: number;
  readonly #headers: Record<string, string> = { Accept: "application/json" };
  #first = 0;
  /** Node.js fails at a 421 to a body that it could send again (nodejs/undici#2898), so it gets one that it cannot. */
  #streams = false;

  constructor(servers: string | string[], options: ClientOptions = {}) {
    this.#bases = [servers].flat().map((base) => base.replace(/\/+$/, ""));
    if (this.#bases.some((base) => /^[^/]*\/\/[^/]*@/.test(base))) {
      throw new TypeError("a base URL has a user or a password; pass token instead");
    }
    if (this.#bases.length === 0 || !this.#bases.every((base) => /^https?:\/\/[^/]/.test(base))) {
      throw new TypeError(`[${this.#bases}] are no base URLs: each begins with http:// or https:// and a host`);
    }
    const { token: given, timeout = 10_000, ...unknown } = options;
    refuse(unknown);
    this.#timeout = timeout;
    const token = given ?? (globalThis as JSONObject)["process"]?.env?.FENCELOCK_SERVE_TOKEN?.trim();
    if (token && !/^[!-~]+$/.test(token)) { // no text of an error shows it
      throw new TypeError("the token is not of visible ASCII characters, without blanks and line ends");
    }
    if (token) this.#headers["Authorization"] = `Bearer ${token}`;
  }

  /**
   * Waits in line, and holds the key until the release. Rejects with NotAcquired, Unavailable,
   * Forbidden, InvalidRequest or TooMany. A call that is aborted leaves the line in the
   * background.
   */
  async acquire(key: string, options: AcquireOptions = {}): Promise<Lease> {
    return new Lease(this, await this.#claim("/v1/acquire", key, options));
  }

  /** Holds the key while `work` runs, and rejects with LeaseLost if the lease ended before it was done. */
  async withLock<T>(key: string, options: AcquireOptions, work: (lease: Lease) => Promise<T> | T): Promise<T> {
    return hold(await this.acquire(key, options), async (lease) => {
      const result = await work(lease);
      await lease.release().catch(ignoreUnavailable);
      return result;
    });
  }

  /**
   * Runs `work` once per slot ("5m", "24h", "ever"), whoever asks; false: the slot was done
   * before. The slot counts as done if `work` is fulfilled while it holds the lease, and true
   * says that it is noted. Rejects with LeaseLost if it is not, and with Unavailable if no server
   * says whether it is: then the note is sent again in the background until the lease ends.
   * Rejects with SlotPassed if a later slot is done: then `work` did not run, and nobody knows
   * whether this slot was done before.
   */
  async once(
    key: string,
    slot: string,
    work: (lease: Lease) => Promise<unknown> | unknown,
    options: OnceOptions = {},
  ): Promise<boolean> {
    const reply = await this.#claim("/v1/once", key, options, { slot });
    if (reply.data["done"]) return false;
    await hold(new Lease(this, reply), async (lease) => {
      await work(lease);
      await lease.release(reply.data["slot"]);
    });
    return true;
  }

  /** Who holds the key and who waits for it, in order. */
  async line(key: string): Promise<Line> {
    return (await this.call("/v1/line?" + new URLSearchParams({ key }))).data as Line;
  }

  /** The lines in use whose keys begin with prefix, and whether there are more than limit. */
  async lines(prefix = "", limit = 100): Promise<{ lines: Line[]; truncated: boolean }> {
    const query = new URLSearchParams({ prefix, limit: String(limit) });
    return (await this.call("/v1/lines?" + query)).data as { lines: Line[]; truncated: boolean };
  }

  /**
   * Ends the claim of any client by force. Rejects with NoClaim if no claim of the key has the token.
   * The holder keeps the key for `notice`, and is told. The key stays closed for `delay` after the end,
   * by default for the delay of the lease, if it has one.
   */
  async breakClaim(key: string, token: string, reason: string, options: BreakOptions = {}): Promise<void> {
    const { notice, delay, ...unknown } = options;
    refuse(unknown);
    const body: JSONObject = { key, token, reason };
    if (notice) body["notice"] = duration(notice);
    if (delay !== undefined) body["delay"] = duration(delay);
    await this.call("/v1/break", body);
  }

  async #claim(path: string, key: string, options: AcquireOptions, more: JSONObject = {}): Promise<Reply> {
    const { kind, permits, size, note, owner, ttl = 30_000, wait = 0, signal, requestId, ...unknown } = options;
    refuse(unknown);
    const random = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0"));
    const id = { key, request_id: requestId ?? random.join("") };
    const body = { ...id, kind, permits, size, note, owner, ttl: duration(ttl), ...more }; // JSON has no undefined
    try {
      return await this.call(path, body, { wait, signal });
    } catch (error) {
      // A server that does not hear of it ends the claim seconds later.
      if (signal?.aborted) void this.call("/v1/leave", id, { limit: now() + 5000 }).catch(() => {});
      // A refusal, or the lease, whose answer never came.
      const spent = error instanceof LeaseLost && error.unsure;
      throw spent ? new NotAcquired(error.message, "not-acquired", error.problem) : error;
    }
  }

  /**
   * Sends until a server answers for good. Each request names its claim, so repeating it is safe.
   * @internal
   */
  async call(path: string, body?: JSONObject, options: Call = {}): Promise<Reply> {
    let { wait, limit = Infinity, base = "", signal } = options;
    const begin = now();
    const end = begin + (wait ?? 0);
    const giveUp = Math.min(limit, end + this.#timeout);
    for (let hops = 0, failures = 0; ; ) {
      const at = base || this.#bases[this.#first]!;
      const sent = now();
      const poll = Math.min(Math.max(0, end - sent), POLL);
      if (wait !== undefined) body = { ...body, wait: duration(poll), stay: end - sent > poll ? true : undefined };
      // The slot is that of the first attempt.
      if (body?.["slot"] && sent > begin) body = { ...body, since: duration(sent - begin) };
      // An attempt gets half of the time that is left, the other half is for the next one.
      const timeout = poll + Math.max(20, Math.min(this.#timeout, giveUp - sent - poll) / 2);
      let error: FencelockError;
      let pause = 0;
      let failed = true;
      try {
        const answer = await this.#send(at + path, body, timeout, signal);
        if (answer.status === 200) return { data: JSON.parse(answer.text), sent, base };
        error = refusal(answer.status, answer.text);
        const instance = String(error.problem["instance"] ?? "");
        if (error.slug === "misdirected" && hops < HOPS && trusts(at, instance)) {
          base = instance.replace(/\/+$/, "");
          hops++;
          continue;
        }
        if (body?.["slot"] && error.problem["slot"]) body["slot"] = error.problem["slot"]; // waiting moves no slot
        // A lease that is held is renewed and released in spite of a refusal: rights may come back.
        if (answer.status < 500 || (wait !== undefined && error.slug === "refused")) {
          error.unsure = failures > 0;
          throw error;
        }
        failed = error.slug !== "come-again";
        pause = Math.max(50, 1000 * (Number(answer.retryAfter) || 0));
      } catch (cause) {
        signal?.throwIfAborted();
        if (cause instanceof FencelockError) throw cause;
        if (!this.#streams && (cause as any).cause?.code === "UND_ERR_REQ_CONTENT_LENGTH_MISMATCH") {
          this.#streams = true;
          continue;
        }
        error = new Unavailable(`${at} does not answer: ${cause}`, "unavailable", {}, { cause });
      }
      if (failed) {
        // The next one; a pause when none is left.
        failures++;
        base = "";
        this.#first = (this.#first + 1) % this.#bases.length;
        const rounds = Math.floor(failures / this.#bases.length);
        const backoff = Math.min(1000, 25 * 2 ** Math.min(rounds, 9)) * (0.5 + Math.random() / 2);
        if (failures % this.#bases.length === 0) pause = Math.max(pause, backoff);
      }
      if (now() + pause + 20 >= giveUp) throw error;
      await sleep(pause, signal);
    }
  }

  async #send(url: string, body: JSONObject | undefined, timeout: number, signal: AbortSignal | undefined) {
    const controller = new AbortController();
    const abort = () => controller.abort(signal?.reason);
    const timer = setTimeout(() => controller.abort(new Error(`no answer in ${Math.round(timeout)} ms`)), timeout);
    const forget = onAbort(signal, abort);
    try {
      signal?.throwIfAborted();
      const request: RequestInit = { headers: this.#headers, redirect: "error", signal: controller.signal };
      if (body) {
        request.method = "POST";
        request.body = JSON.stringify(body);
        if (this.#streams) Object.assign(request, { body: new Blob([request.body]).stream(), duplex: "half" });
        request.headers = { ...this.#headers, "Content-Type": "application/json" };
      }
      const response = await fetch(url, request);
      return { status: response.status, retryAfter: response.headers.get("Retry-After"), text: await response.text() };
    } finally {
      clearTimeout(timer);
      forget();
    }
  }
}

/** Refuses options that nobody reads: in JavaScript no compiler does. */
function refuse(unknown: object): void {
  const names = Object.keys(unknown);
  if (names.length > 0) throw new TypeError(`there is no option ${names.join(", ")}`);
}

/** A held key, renewed in the background at a third of its ttl. */
export class Lease {
  readonly key: string;
  readonly handle: string;
  /** The fencing token, decimal: JavaScript's numbers are exact only up to 2^53. */
  readonly token: string;
  readonly ttl: number;
  readonly requestId: string;
  readonly #client: Client;
  readonly #ended = new AbortController();
  readonly #revoked = new AbortController();
  #base: string;
  #sent: number;
  #deadline: number;
  #trouble = BUSY;
  #watch: ReturnType<typeof setTimeout> | undefined;
  /** A release has begun. */
  #released: { done: string | undefined } | undefined;
  /** The release that is under way, or that was answered. */
  #sending: Promise<void> | undefined;
  #tried = false;
  #owed = false;

  /** @internal */
  constructor(client: Client, { data, sent, base }: Reply) {
    this.#client = client;
    this.#base = base;
    this.key = data["key"];
    this.handle = data["handle"];
    this.token = data["token"];
    this.ttl = data["ttl_ms"];
    this.requestId = data["request_id"];
    this.#sent = sent + Math.min(data["waited_ms"], now() - sent);
    this.#deadline = this.#sent + data["left_ms"];
    this.#plan();
    void this.#renew();
  }

  /** Aborts when the lease ends: with LeaseLost as its reason, or after the release. */
  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /**
   * Aborts when a break gives notice, with its reason: finish the work and release the lease within `left`.
   * Renewals do not make the lease longer any more.
   */
  get revoked(): AbortSignal {
    return this.#revoked.signal;
  }

  /** How long until the lease ends unless it is renewed; 0 after its end. */
  get left(): number {
    return this.signal.aborted ? 0 : Math.max(0, this.#deadline - now());
  }

  /** Throws LeaseLost unless the lease is held, by this process's clock. It asks no server. */
  check(): void {
    if (this.left === 0) this.#runOut();
    this.signal.throwIfAborted();
  }

  /**
   * Gives the key back; a call after an answered one does nothing. `done` notes a slot of once
   * as done. Rejects with LeaseLost if the lease had ended before, and with Unavailable if no
   * server answered: then the release is sent again in the background until the lease ends. A
   * further call sends it again at once.
   */
  async release(done?: string): Promise<void> {
    if (!this.#released) {
      this.check();
      this.#released = { done };
      this.#end("released");
    } else if (done !== undefined && done !== this.#released.done) {
      this.signal.throwIfAborted(); // it was released, and the slot is not noted as done
    }
    this.#sending ??= this.#send();
    await this.#sending;
  }

  /** Sends the release. Its outcome stays if a server has answered; else the next call sends it again. */
  async #send(limit?: number): Promise<void> {
    const tried = this.#tried;
    this.#tried = true;
    const body = { handle: this.handle, done: this.#released?.done };
    try {
      await this.#client.call("/v1/release", body, { base: this.#base, limit: limit ?? Infinity });
    } catch (error) {
      if (error instanceof LeaseLost) {
        // An attempt without an answer may have released it. It has noted no slot: a server that
        // has noted a slot for this lease says so to every repeated request.
        if (!body.done && (tried || error.unsure)) return;
        throw error;
      }
      this.#sending = undefined;
      if (!this.#owed) void this.#repay();
      throw error;
    }
  }

  /** Sends the release again until a server answers it, or the lease has ended by itself. */
  async #repay(): Promise<void> {
    this.#owed = true;
    for (;;) {
      await sleep(Math.max(50, Math.min(1000, this.ttl / 10)), undefined, unref);
      if (now() >= this.#deadline) return;
      this.#sending ??= this.#send(this.#deadline);
      try {
        return await this.#sending;
      } catch (error) {
        if (error instanceof LeaseLost) return;
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release().catch(ignoreUnavailable);
  }

  #runOut(): void {
    const broken = `it was broken, and its notice is over: ${this.revoked.reason}`;
    this.#end(this.revoked.aborted ? broken : `it was not renewed in time: ${this.#trouble}`);
  }

  #end(reason: string): void {
    clearTimeout(this.#watch);
    const text = reason === "released" ? "was released" : `was lost: ${reason}`;
    if (!this.signal.aborted) this.#ended.abort(new LeaseLost(`"${this.key}" ${text}`, "lost", { reason }));
  }

  /** Plans to look at the clock when the lease ends, whatever a renewal is doing then. */
  #plan(): void {
    clearTimeout(this.#watch);
    this.#watch = setTimeout(
      () => (this.left === 0 ? this.#runOut() : this.#plan()),
      Math.min(Math.ceil(this.left), LONGEST),
    );
    unref(this.#watch);
  }

  async #renew(): Promise<void> {
    const { signal } = this;
    while (!signal.aborted) {
      try {
        const length = this.revoked.aborted ? this.ttl : this.#deadline - this.#sent;
        const next = this.#sent + Math.min(this.ttl, length) / 3;
        await sleep(Math.max(10, next - now()), signal, unref);
        const options = { limit: this.#deadline, base: this.#base, signal };
        if (this.#trouble === BUSY) this.#trouble = "no renewal was answered";
        const reply = await this.#client.call("/v1/renew", { handle: this.handle }, options);
        if (signal.aborted) return;
        this.#sent = reply.sent;
        this.#base = reply.base;
        this.#deadline = reply.sent + reply.data["left_ms"];
        this.#trouble = BUSY;
        this.#plan();
        if (reply.data["revoked"]) this.#revoked.abort(reply.data["reason"] ?? "");
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof LeaseLost) return this.#end(error.reason);
        this.#trouble = String(error); // it may pass before the lease ends, as a wrong file of tokens does
        await sleep(this.ttl / 10, signal, unref).catch(() => {});
      }
    }
  }
}

/** Runs the work, and releases whatever becomes of it. A loss outranks what the work threw because of it. */
async function hold<T>(lease: Lease, work: (lease: Lease) => Promise<T>): Promise<T> {
  try {
    return await work(lease);
  } catch (error) {
    if (lease.signal.reason?.problem?.reason !== "released") lease.check();
    throw error;
  } finally {
    if (!lease.signal.aborted) await lease.release().catch(() => {});
  }
}

function ignoreUnavailable(error: unknown): void {
  if (!(error instanceof FencelockError) || error instanceof LeaseLost) throw error;
}

function refusal(status: number, text: string): FencelockError {
  let problem: JSONObject = {};
  try {
    problem = Object(JSON.parse(text));
  } catch {} // of a balancer, not of fencelock
  const slug = String(problem["type"] ?? "unavailable").replace(/.*\//, "");
  const known = Object.hasOwn(classes, slug) ? classes[slug]! : status < 500 ? InvalidRequest : Unavailable;
  const holder = problem["holders"]?.[0];
  const said = problem["detail"] ?? problem["title"] ?? `the server answered with status ${status}`;
  const quote = JSON.stringify;
  const told = holder ? `the lock is held by ${quote(holder.owner)} with the note ${quote(holder.note)}` : said;
  return new known(problem["key"] === undefined ? told : `${quote(problem["key"])}: ${told}`, slug, problem);
}

/** The bearer token must not go where it can be read on the way. */
function trusts(base: string, instance: string): boolean {
  return /^https:\/\/[^/]/.test(instance) || (/^http:\/\/[^/]/.test(instance) && base.startsWith("http:"));
}

const duration = (ms: number): string => `${Math.max(0, Math.ceil(ms))}ms`;

/** A program may end while it holds a lease: its timers do not keep Node.js running. */
function unref(timer: unknown): void {
  (timer as { unref?: () => void }).unref?.();
}

const aborts = new WeakMap<AbortSignal, Set<() => void>>();

/**
 * Calls `then` when the signal aborts, until what it returns is called. Many calls that share one signal, as a
 * server's that shuts down, have one listener: Node.js warns of more than ten.
 */
function onAbort(signal: AbortSignal | undefined, then: () => void): () => void {
  if (!signal) return () => {};
  let all = aborts.get(signal);
  if (!all) {
    const calls = (all = new Set());
    aborts.set(signal, calls);
    signal.addEventListener("abort", () => calls.forEach((call) => call()), { once: true });
  }
  const calls = all.add(then);
  return () => calls.delete(then);
}

function sleep(ms: number, signal?: AbortSignal, each?: (timer: unknown) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      forget();
      resolve();
    }, Math.min(Math.max(0, ms), LONGEST));
    each?.(timer);
    const forget = onAbort(signal, stop);
  });
}
