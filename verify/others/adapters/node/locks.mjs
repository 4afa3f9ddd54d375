// Adapters of redlock and redis-semaphore: node locks.mjs NAME TTL_MS HOST:PORT.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";

const require = createRequire(import.meta.url);
const { Redis } = require("ioredis");
const say = (text) => process.stdout.write(String(text).replaceAll("\n", " ") + "\n");
const version = (name) =>
  JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;

// redlock: using() extends the lock by itself, and aborts a signal when that fails.
function redlock(redis) {
  const { default: Redlock } = require("redlock");
  const locks = new Redlock([redis]);
  locks.on("error", () => {}); // its README listens, too: the errors of single attempts
  let release, ended;
  return {
    lock(key, ttl, wait) {
      const settings = wait ? { retryCount: Math.ceil(wait / 200) } : {};
      return new Promise((answer) => {
        ended = locks
          .using([key], ttl, settings, (signal) => {
            signal.addEventListener("abort", () => say("told " + signal.error));
            answer("held");
            return new Promise((done) => (release = done));
          })
          .then(() => "released", (e) => {
            answer(/quorum/.test(e.message) ? "refused" : "error " + e.message);
            return "error " + e.message;
          });
      });
    },
    unlock() {
      release();
      return ended;
    },
  };
}

// redis-semaphore: Mutex refreshes the lock by itself, and calls onLockLost.
function semaphore(redis) {
  const { Mutex, TimeoutError } = require("redis-semaphore");
  let mutex;
  return {
    async lock(key, ttl, wait) {
      mutex = new Mutex(redis, key, {
        lockTimeout: ttl,
        onLockLost: (e) => say("told " + e.message),
        ...(wait && { acquireTimeout: wait }),
      });
      try {
        await mutex.acquire();
      } catch (e) {
        if (e instanceof TimeoutError) return "refused";
        throw e;
      }
      return "held";
    },
    async unlock() {
      const had = mutex.isAcquired;
      await mutex.release();
      return had ? "released" : "lost";
    },
  };
}

const [name, , address] = process.argv.slice(2);
const [host, port] = address.split(":");
const redis = new Redis({ host, port: Number(port) });
redis.on("error", () => {}); // calls fail or are repeated; without this ioredis prints
await redis.ping();
const library = { redlock, "redis-semaphore": semaphore }[name](redis);
say("ready " + version(name));
for await (const line of createInterface({ input: process.stdin })) {
  const [word, key, ttl, wait] = line.split(" ");
  try {
    say(await (word === "lock" ? library.lock(key, Number(ttl), Number(wait)) : library.unlock()));
  } catch (e) {
    say("error " + e.message);
  }
}
process.exit();
