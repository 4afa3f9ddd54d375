"""A web program for gunicorn --preload: its master makes the client and acquires a lock, then it forks workers."""

import atexit
import json
import os

from fencelock import Client, LeaseLost

client = Client(os.environ["SERVER"])
lease = client.acquire("master", ttl=30)
atexit.register(lease.release)  # runs in the master, and in every worker that exits


def seen() -> str:
    try:
        lease.check()
        return "held"
    except LeaseLost:
        return "not held"


def child_exit(server, worker):
    """gunicorn calls it in its master when a worker has exited."""
    with open(os.environ["EXITS"], "a") as file:
        print(worker.pid, seen(), file=file)


def app(environ, start_response):
    if environ["PATH_INFO"] == "/release":
        lease.release()
    with client.acquire("job", wait=600, ttl=30) as mine:
        mine.check()
        answer = {"pid": os.getpid(), "seen": seen(), "token": mine.token}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]
