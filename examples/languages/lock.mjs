// Hold a fencelock lock while an asynchronous function runs.
//
//	await withLock("report", ["--wait", "60"], async (token) => writeReport(token));
//
// The program needs the command fencelock in its PATH, and FENCELOCK_URL as every other
// program has it. A lock that is not acquired is an error whose code is 75. If the lock is
// lost, this process gets SIGTERM before another client can have it; a handler for SIGTERM
// decides what to do then. The token is a string: JavaScript's numbers are too small.
import { spawn } from "node:child_process";
import { once } from "node:events";

export async function withLock(name, options, work) {
  // The lock is held until cat reads the end of its input. A session of its own keeps Ctrl-C from it.
  const command = ["run", name, ...options, "--", "sh", "-c", 'echo "$FENCELOCK_TOKEN"; exec cat'];
  const holder = spawn("fencelock", command, { stdio: ["pipe", "pipe", "inherit"], detached: true });
  const ended = once(holder, "close");
  ended.catch(() => {}); // without the command, the reading below fails too
  holder.stdin.on("error", () => {});
  let released = false;
  try {
    return await work(await token(name, holder.stdout, ended, () => {
      if (!released) process.kill(process.pid, "SIGTERM");
    }));
  } finally {
    released = true;
    holder.stdin.end();
    await ended;
  }
}

// token reads the fencing token, and calls lost at the end of the output.
async function token(name, output, ended, lost) {
  const first = await Promise.race([once(output, "data"), ended.then(() => undefined)]);
  if (!first) {
    const [code] = await ended;
    throw Object.assign(new Error(`fencelock run ${name}: exit ${code}`), { code });
  }
  output.on("end", lost);
  return String(first[0]).trim();
}
