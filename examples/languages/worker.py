"""Take the lock several times, and write down when and with which token."""

import sys
import time

from lock import lock

who, rounds, file = sys.argv[1], int(sys.argv[2]), sys.argv[3]
for _ in range(rounds):
    with lock("shared") as token:
        with open(file, "a") as out:
            print("enter", who, token, file=out)
        time.sleep(0.02)
        with open(file, "a") as out:
            print("leave", who, token, file=out)
