// Hold a fencelock lock while an asynchronous function runs.
//
//	await withLock("report", ["--wait", "60"], async (token) => writeReport(token));
//
// The program needs the command fencelock in its PATH, and FENCELOCK_URL as every other
// program has it. A lock that is not acquired is an error whose code is 75. If the lock is
// lost, this process gets SIGTERM before anybody else can have it; a handler for SIGTERM
// decides what to do then. The token is a string: JavaScript's numbers are too small.
import { spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export async function withLock(name, options, work) {
  const folder = mkdtempSync(join(tmpdir(), "lock-"));
  const file = openSync(join(folder, "held"), "w"); // held as long as this file is open
  rmSync(folder, { recursive: true });
  try {
    return await work(await hold(name, options, file));
  } finally {
    closeSync(file);
  }
}

// hold resolves with the fencing token. It waits without blocking the event loop.
function hold(name, options, file) {
  return new Promise((resolve, reject) => {
    const child = spawn("fencelock", ["hold", name, "--fd", "3", "--print-token", ...options], {
      stdio: ["ignore", "pipe", "inherit", file],
    });
    let token = "";
    child.stdout.on("data", (text) => (token += text));
    child.on("error", reject);
    child.on("close", (code) =>
      code === 0 ? resolve(token.trim()) : reject(Object.assign(new Error(`fencelock hold ${name}: exit ${code}`), { code })));
  });
}
