"""Adapters of redis-py's Lock and of kazoo's Lock: locks.py NAME TTL_MS HOST:PORT."""
import logging
import sys
import threading

logging.disable()
writing = threading.Lock()


def say(text):
    with writing:
        print(str(text).replace("\n", " "), flush=True)


class RedisPy:
    def __init__(self, address, ttl):
        import redis
        host, port = address.split(":")
        self.redis, self.module = redis.Redis(host=host, port=int(port)), redis
        self.redis.ping()
        self.version = redis.__version__

    def lock(self, key, ttl, wait):
        self.held = self.redis.lock(key, timeout=ttl, blocking_timeout=wait)
        return "held" if self.held.acquire() else "refused"

    def unlock(self):
        try:
            self.held.release()
        except self.module.exceptions.LockNotOwnedError:
            return "lost"
        return "released"


class Kazoo:
    def __init__(self, address, ttl):
        import kazoo.client
        import kazoo.exceptions
        import kazoo.version
        self.module, self.holds = kazoo, False
        self.client = kazoo.client.KazooClient(hosts=address, timeout=ttl)
        self.client.add_listener(self.changed)
        self.client.start()
        self.version = kazoo.version.__version__

    def changed(self, state):
        """Is what the documentation wants beside each lock."""
        if self.holds and state == self.module.client.KazooState.SUSPENDED:
            say("doubt the connection is suspended")
        if self.holds and state == self.module.client.KazooState.LOST:
            say("told that the session is lost")

    def lock(self, key, ttl, wait):
        self.held = self.client.Lock("/locks/" + key)
        try:
            self.holds = self.held.acquire(timeout=wait)
        except self.module.exceptions.LockTimeout:
            return "refused"
        return "held" if self.holds else "refused"

    def unlock(self):
        self.holds = False
        return "released" if self.held.release() else "lost"


def main(name, ttl_ms, address):
    library = {"redis-py": RedisPy, "kazoo": Kazoo}[name](address, int(ttl_ms) / 1000)
    say("ready " + library.version)
    for line in sys.stdin:
        word, *rest = line.split()
        try:
            if word == "lock":
                times = [int(ms) / 1000 for ms in rest[1:]] + [None]
                say(library.lock(rest[0], times[0], times[1]))
            else:
                say(library.unlock())
        except Exception as e:
            say(f"error {type(e).__name__} {e}")


main(*sys.argv[1:])
