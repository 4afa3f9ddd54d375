"""A program for a celery worker: the module is loaded in the main process, then the pool is forked."""

import atexit
import os

from celery import Celery
from celery.signals import worker_process_shutdown
from fencelock import Client, LeaseLost

app = Celery("tasks", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.update(worker_max_tasks_per_child=1, broker_connection_retry_on_startup=True)

client = Client(os.environ["SERVER"])
lease = client.acquire("master", ttl=30)
atexit.register(lease.release)
worker_process_shutdown.connect(lambda **_: lease.release(), weak=False)


@app.task
def work():
    try:
        lease.check()
        seen = "held"
    except LeaseLost:
        seen = "not held"
    lease.release()
    with client.acquire("job", wait=600, ttl=30) as mine:
        mine.check()
        return {"pid": os.getpid(), "seen": seen, "token": mine.token}
