// Take the lock several times, and write down when and with which token.
import { appendFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { withLock } from "./lock.mjs";

const [who, rounds, file] = process.argv.slice(2);
for (let i = 0; i < rounds; i++) {
  await withLock("shared", [], async (token) => {
    appendFileSync(file, `enter ${who} ${token}\n`);
    await setTimeout(20);
    appendFileSync(file, `leave ${who} ${token}\n`);
  });
}
