"""The blocking client."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import threading
import time
from typing import Callable, Iterator, Optional, Tuple
from urllib.parse import urlsplit

from ._protocol import (JSON, Answer, FencelockError, LeaseCore, LeaseLost, Outcome, Reply, Send, Session, Steps, T,
                        this_process)

OnLost = Callable[[LeaseLost], object]


def _exchange(send: Send, tls: Optional[ssl.SSLContext]) -> Outcome:
    """One request on a connection of its own, which ends with it."""
    url = urlsplit(send.url)
    c = http.client.HTTPConnection(url.hostname or "", url.port, timeout=send.timeout)
    if url.scheme == "https":
        c = http.client.HTTPSConnection(url.hostname or "", url.port, timeout=send.timeout, context=tls)
    try:
        c.request(send.method, url.path + ("?" + url.query if url.query else ""), send.body, dict(send.headers))
        response = c.getresponse()
        return Answer(response.status, response.getheader("Retry-After"), response.read())
    except (OSError, http.client.HTTPException) as error:
        return error
    finally:
        c.close()


def _later(work: Callable[[], None], daemon: bool) -> None:
    def quiet() -> None:
        with contextlib.suppress(FencelockError):
            work()

    with contextlib.suppress(RuntimeError):  # the interpreter ends
        threading.Thread(target=quiet, name="fencelock release", daemon=daemon).start()


class Client:
    """Locks of a `fencelock serve`. Threads may share it, and forked processes may use their copies of it.

    `servers` are base URLs of one store, tried in turn. A call that gets no answer raises
    Unavailable `timeout` seconds after its wait. `token` is FENCELOCK_SERVE_TOKEN by default.
    """

    def __init__(self, *servers: str, token: Optional[str] = None, timeout: float = 10.0,
                 tls: Optional[ssl.SSLContext] = None) -> None:
        self._session, self._tls = Session(servers, token, timeout), tls

    def acquire(self, key: str, *, kind: str = "exclusive", permits: Optional[int] = None, size: Optional[int] = None,
                ttl: float = 30.0, wait: float = 0.0, note: str = "", owner: str = "", request_id: str = "",
                on_lost: Optional[OnLost] = None) -> Lease:
        """Wait in line for `wait` seconds (math.inf: forever), and hold the key until the release.

        `kind` is exclusive, shared or permits: `permits` of `size`. on_lost is called in a
        thread of its own. Raises NotAcquired, Unavailable, Forbidden, InvalidRequest, TooMany.
        """
        claim = self._session.claim(key, kind=kind, permits=permits, size=size, ttl=ttl, note=note, owner=owner,
                                    request_id=request_id)
        with self._leaving(claim):
            return Lease(self, self._session, self.run(self._session.acquire(claim, wait)), on_lost)

    def once(self, key: str, slot: str, work: Callable[[Lease], object], *, ttl: float = 30.0, wait: float = 0.0,
             note: str = "", owner: str = "") -> bool:
        """Run `work` once per slot ("5m", "24h", "ever"), whoever asks. False: the slot was done before.

        The slot counts as done if work returns while it holds the lease, and True says that it
        is noted. Raises LeaseLost if it is not, and Unavailable if no server says whether it is: then
        the note is sent again in the background until the lease ends. Raises SlotPassed if a later
        slot is done: then the work did not run, and nobody knows whether this slot was done before.
        """
        claim = self._session.claim(key, slot=slot, ttl=ttl, note=note, owner=owner)
        with self._leaving(claim):
            reply = self.run(self._session.acquire(claim, wait))
            if reply.data.get("done"):
                return False
            lease = Lease(self, self._session, reply, None)
        with lease:
            work(lease)
            lease.check()  # a fork that returns from the work has done no slot
            lease.release(done=reply.data["slot"])
        return True

    @contextlib.contextmanager
    def _leaving(self, claim: JSON) -> Iterator[None]:
        """Give the claim up if the call is interrupted: by Ctrl-C, or by what a handler of a signal raises."""
        try:
            yield
        except FencelockError:
            raise
        except BaseException:  # the program may end now, and waits for this thread
            _later(lambda: self.run(self._session.leave(claim)), daemon=False)
            raise

    def line(self, key: str) -> JSON:
        """Who holds the key and who waits for it, in order."""
        return self.run(self._session.line(key))

    def lines(self, prefix: str = "", limit: int = 100) -> JSON:
        """The lines in use whose keys begin with prefix: `lines`, and whether they are `truncated`."""
        return self.run(self._session.lines(prefix, limit))

    def break_claim(self, key: str, token: int, reason: str, *, notice: float = 0.0,
                    delay: Optional[float] = None) -> None:
        """End the claim of any client by force. Raises NoClaim if no claim of the key has the token.

        The holder keeps the key for `notice` seconds, and is told. The key stays closed for `delay`
        seconds after the end, by default for the delay of the lease, if it has one.
        """
        self.run(self._session.break_claim(key, token, reason, notice, delay))

    def run(self, steps: Steps[T], sleep: Callable[[float], object] = time.sleep) -> T:
        """Play a conversation; for this package."""
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                return end.value
            outcome = _exchange(step, self._tls) if isinstance(step, Send) else None
            if not isinstance(step, Send):
                sleep(step)


class _Lost(threading.Event):
    """Is set by the loss, and at once in every fork of the process: a fork holds no lease."""

    def __init__(self, process: Tuple[int, int]) -> None:
        super().__init__()
        self._process = process

    def is_set(self) -> bool:
        return self._process != this_process() or super().is_set()

    def wait(self, timeout: Optional[float] = None) -> bool:
        return self._process != this_process() or super().wait(timeout)


class Lease(LeaseCore):
    """A held key, renewed by a thread of its own. Use it in `with`, or call release.

    `lost` is set when the lease ends before its release. Work that must not go on then
    calls check(), or waits for nothing longer than `left` seconds. `revoked` is set when a break
    gives notice, for the reason in `revocation`: finish the work and release it within `left` seconds.

    A lease belongs to the process that acquired it. In a fork of that process `lost` is
    set, check() raises LeaseLost, and release() does nothing.
    """

    def __init__(self, client: Client, session: Session, reply: Reply, on_lost: Optional[OnLost]) -> None:
        super().__init__(session, reply)
        self.lost: threading.Event = _Lost(self._process)
        self.revoked = threading.Event()
        self._client, self._on_lost = client, on_lost
        self._ended, self._mutex = threading.Event(), threading.RLock()
        self._sending, self._repaying = threading.Lock(), False  # held while a release is under way
        for work in (self._watch, self._renew):
            threading.Thread(target=work, name=f"fencelock {self.key!r}", daemon=True).start()

    def _lose(self, reason: str) -> bool:
        with self._mutex:
            if not super()._lose(reason):
                return False
        self.lost.set()
        self._ended.set()
        if self._on_lost is not None:
            threading.Thread(target=self._on_lost, args=(self._error,), daemon=True).start()
        return True

    def _revoke(self, reason: str) -> None:
        super()._revoke(reason)
        if not self.revoked.is_set():  # the other watch waits for the end of the lease, which may be later
            threading.Thread(target=self._watch, name=f"fencelock {self.key!r}", daemon=True).start()
        self.revoked.set()

    def _watch(self) -> None:
        """Tell of the end in time, also while a renewal hangs in a connection or a look-up of a name."""
        while not self._ended.wait(self.left):
            if self.left == 0:
                self._lose(self._ran_out())

    def _renew(self) -> None:
        def sleep(seconds: float) -> None:
            if self._ended.wait(seconds):
                raise SystemExit  # which ends this thread alone

        self._client.run(self._renewals(), sleep)

    def release(self, done: str = "") -> None:
        """Give the key back; a call after an answered one does nothing. `done` notes a slot of once as done.

        Raises LeaseLost if the lease had ended before, and Unavailable if no server
        answered. A release that was interrupted, or that no server answered, is sent again in
        the background until the lease ends; a further call sends it again at once.
        """
        if not self._mine:
            return  # before the mutex, which another thread may have held during the fork
        with self._mutex:
            unsettled = self._begin_release(done)
        self._ended.set()
        if unsettled:
            self._send_release()

    def _send_release(self) -> None:
        try:
            with self._sending:
                if not self._settled:
                    self._client.run(self._release())
        except LeaseLost:
            raise
        except FencelockError:
            with self._mutex:
                first, self._repaying = not self._repaying, True
            if first:
                _later(self._repay, daemon=True)
            raise
        except BaseException:  # KeyboardInterrupt: the program may end now, and waits for this thread
            _later(self._send_release, daemon=False)
            raise

    def _repay(self) -> None:
        def sleep(seconds: float) -> None:
            self._sending.release()
            try:
                time.sleep(seconds)
            finally:
                self._sending.acquire()

        try:
            with self._sending:
                self._client.run(self._owed(), sleep)
        finally:
            self._repaying = False

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: object, error: Optional[BaseException], trace: object) -> None:
        if self._tried:
            return  # the block has released it, and seen how that went
        try:
            self.release()
        except FencelockError as failed:
            if error is None and isinstance(failed, LeaseLost):
                raise  # the block ran on without its lock
