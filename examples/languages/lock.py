"""Hold a fencelock lock for a block of Python.

    with lock("report", "--wait", "60") as token:
        write_report(token)

The program needs the command fencelock in its PATH, and FENCELOCK_URL as every other
program has it. A lock that is not acquired is a subprocess.CalledProcessError with
returncode 75. If the lock is lost, this process gets SIGTERM before anybody else can
have it; a handler for SIGTERM decides what to do then.
"""

import contextlib
import subprocess
import tempfile


@contextlib.contextmanager
def lock(name, *options):
    """Hold the lock until the block ends. The value is its fencing token."""
    with tempfile.TemporaryFile() as file:  # held as long as this file is open
        fd = str(file.fileno())
        held = subprocess.run(
            ["fencelock", "hold", name, "--fd", fd, "--print-token", *options],
            pass_fds=[file.fileno()], stdout=subprocess.PIPE, check=True)
        yield int(held.stdout)
