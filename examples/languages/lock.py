"""Hold a fencelock lock for a block of Python.

    with lock("report", "--wait", "60") as token:
        write_report(token)

The program needs the command fencelock in its PATH, and FENCELOCK_URL as every other
program has it. A lock that is not acquired is a subprocess.CalledProcessError with
returncode 75. If the lock is lost, this process gets SIGTERM before another client can
have it; a handler for SIGTERM decides what to do then.
"""

import contextlib
import os
import signal
import subprocess
import threading


@contextlib.contextmanager
def lock(name, *options):
    """Hold the lock until the block ends. The value is its fencing token."""
    # The lock is held until cat reads the end of its input. A session of its own keeps Ctrl-C from it.
    command = ["fencelock", "run", name, *options, "--", "sh", "-c", 'echo "$FENCELOCK_TOKEN"; exec cat']
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    released = threading.Event()

    def watch():
        holder.stdout.read()  # until cat has ended
        if not released.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        token = holder.stdout.readline()
        if not token:
            raise subprocess.CalledProcessError(holder.wait(), command)
        threading.Thread(target=watch, daemon=True).start()
        yield int(token)
    finally:
        released.set()
        holder.stdin.close()
        holder.wait()
