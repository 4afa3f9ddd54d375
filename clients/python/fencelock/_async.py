"""The asyncio client."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import math
import socket
import ssl
import threading
from typing import Any, Awaitable, Callable, Coroutine, List, Literal, Optional, Set, Tuple, Union
from urllib.parse import urlsplit

from ._protocol import (JSON, Answer, FencelockError, LeaseCore, LeaseLost, Outcome, Reply, Send, Session, Steps, T,
                        now, this_process)
from ._sync import OnLost


async def _resolve(host: str) -> List[str]:
    """The addresses of a host, without the executor of the loop.

    asyncio looks up names there. The program may fill it with work that lasts for longer than a
    lease, and then no lease would be renewed.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[List[str]] = loop.create_future()

    def look_up() -> None:
        addresses: Union[List[str], OSError]
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            addresses = [str(info[4][0]) for info in infos]
        except OSError as error:
            addresses = error
        except UnicodeError as error:
            addresses = OSError(f"{host} is not the name of a host: {error}")
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(tell, addresses)

    def tell(addresses: Union[List[str], OSError]) -> None:
        if found.done():
            return
        if isinstance(addresses, OSError):
            found.set_exception(addresses)
        else:
            found.set_result(addresses)

    threading.Thread(target=look_up, daemon=True).start()
    return await found


async def _connect(host: str, port: int,
                   secure: Optional[ssl.SSLContext]) -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    failed = OSError(f"{host} has no address")
    for address in await _resolve(host):
        try:
            return await asyncio.open_connection(address, port, ssl=secure, server_hostname=host if secure else None)
        except OSError as error:
            failed = error
    raise failed


async def _http(send: Send, tls: Optional[ssl.SSLContext]) -> Answer:
    url = urlsplit(send.url)
    secure = (tls or ssl.create_default_context()) if url.scheme == "https" else None
    reader, writer = await _connect(url.hostname or "", url.port or (443 if secure else 80), secure)
    try:
        headers = {**send.headers, "Host": url.netloc, "Connection": "close",
                   "Content-Length": str(len(send.body or b""))}
        head = [f"{send.method} {url.path}{'?' if url.query else ''}{url.query} HTTP/1.1",
                *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        writer.write("\r\n".join(head).encode("latin-1") + (send.body or b""))
        raw: Any = io.BytesIO(await reader.read())
    finally:
        writer.close()
    raw.makefile = lambda mode: raw  # pyright: ignore[reportUnknownLambdaType]
    response = http.client.HTTPResponse(raw)  # which wants nothing but makefile of a socket
    response.begin()
    return Answer(response.status, response.getheader("Retry-After"), response.read())


class AsyncClient:
    """Locks of a `fencelock serve`, for asyncio. Its parameters are those of Client."""

    def __init__(self, *servers: str, token: Optional[str] = None, timeout: float = 10.0,
                 tls: Optional[ssl.SSLContext] = None) -> None:
        self._session, self._tls = Session(servers, token, timeout), tls
        self._kept: Set[asyncio.Task[Any]] = set()

    async def acquire(self, key: str, *, kind: str = "exclusive", permits: Optional[int] = None,
                      size: Optional[int] = None, ttl: float = 30.0, wait: float = 0.0, note: str = "",
                      owner: str = "", request_id: str = "", on_lost: Optional[OnLost] = None) -> AsyncLease:
        """As Client.acquire: `async with await client.acquire(key) as lease`. on_lost is called in the loop.

        A call that is cancelled leaves the line in the background.
        """
        claim = self._session.claim(key, kind=kind, permits=permits, size=size, ttl=ttl, note=note, owner=owner,
                                    request_id=request_id)
        return AsyncLease(self, self._session, await self._claim(claim, wait), on_lost)

    async def _claim(self, claim: JSON, wait: float) -> Reply:
        try:
            return await self.run(self._session.acquire(claim, wait))
        except asyncio.CancelledError:
            self.keep(self.insist(lambda limit: self._session.leave(claim)))
            raise

    async def once(self, key: str, slot: str, work: Callable[[AsyncLease], Awaitable[object]], *, ttl: float = 30.0,
                   wait: float = 0.0, note: str = "", owner: str = "") -> bool:
        """As Client.once. If the lease is lost, the work is cancelled and LeaseLost raised."""
        claim = self._session.claim(key, slot=slot, ttl=ttl, note=note, owner=owner)
        reply = await self._claim(claim, wait)
        if reply.data.get("done"):
            return False
        async with AsyncLease(self, self._session, reply, None) as lease:
            await work(lease)
            lease.check()  # a fork that returns from the work has done no slot
            await lease.release(done=reply.data["slot"])
        return True

    async def line(self, key: str) -> JSON:
        """As Client.line."""
        return await self.run(self._session.line(key))

    async def lines(self, prefix: str = "", limit: int = 100) -> JSON:
        """As Client.lines."""
        return await self.run(self._session.lines(prefix, limit))

    async def break_claim(self, key: str, token: int, reason: str, *, notice: float = 0.0,
                          delay: Optional[float] = None) -> None:
        """As Client.break_claim."""
        await self.run(self._session.break_claim(key, token, reason, notice, delay))

    def keep(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that goes on without its caller; for this package."""
        task = asyncio.get_running_loop().create_task(work)
        self._kept.add(task)  # the loop itself keeps no task alive
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._kept.discard(task)
        if not task.cancelled():
            task.exception()  # who waited for it may be gone

    async def insist(self, steps: Callable[[float], Steps[T]]) -> T:
        """Play a conversation also while the loop ends; for this package.

        asyncio.run then cancels every task, and waits until each has ended. The conversation
        begins again, with a limit.
        """
        try:
            return await self.run(steps(math.inf))
        except asyncio.CancelledError:
            return await self.run(steps(now() + 5))

    async def run(self, steps: Steps[T]) -> T:
        """Play a conversation; for this package."""
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                return end.value
            outcome = None
            if not isinstance(step, Send):
                await asyncio.sleep(step)
                continue
            try:
                outcome = await asyncio.wait_for(_http(step, self._tls), step.timeout)
            except (OSError, http.client.HTTPException, asyncio.TimeoutError) as error:
                outcome = error


class _Lost(asyncio.Event):
    """Is set by the loss, and at once in every fork of the process: a fork holds no lease."""

    def __init__(self, process: Tuple[int, int]) -> None:
        super().__init__()
        self._process = process

    def is_set(self) -> bool:
        return self._process != this_process() or super().is_set()

    async def wait(self) -> Literal[True]:
        return self._process != this_process() or await super().wait()


class AsyncLease(LeaseCore):
    """A held key, renewed by a task. `lost` is set when the lease ends before its release.

    `revoked` is set when a break gives notice, for the reason in `revocation`: finish the work and
    release the lease within `left` seconds.

    Inside `async with`, a loss cancels the task of the block, and the block raises
    LeaseLost, as asyncio.timeout does with TimeoutError. A block that keeps the event loop
    busy is told when it awaits; check() asks the clock at any time.

    A lease belongs to the process that acquired it. In a fork of that process `lost` is
    set, check() raises LeaseLost, and release() does nothing.
    """

    def __init__(self, client: AsyncClient, session: Session, reply: Reply, on_lost: Optional[OnLost]) -> None:
        super().__init__(session, reply)
        self.lost: asyncio.Event = _Lost(self._process)
        self.revoked = asyncio.Event()
        self._client, self._on_lost = client, on_lost
        self._block: Optional[asyncio.Task[Any]] = None
        self._cancelled, self._cancelling = False, 0
        self._sending: Optional[asyncio.Task[None]] = None
        self._repaying: Optional[asyncio.Task[None]] = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self.left, self._watch)
        self._renewal = self._loop.create_task(client.run(self._renewals()))

    def _watch(self) -> None:
        if self.left == 0:
            self._lose(self._ran_out())
        else:
            self._timer = self._loop.call_later(self.left, self._watch)

    def _lose(self, reason: str) -> bool:
        if not super()._lose(reason):
            return False
        self._stop()
        self.lost.set()
        if self._on_lost is not None and self._error is not None:
            self._loop.call_soon(self._on_lost, self._error)
        # A block that finds the loss itself, by check, is told by what check raises.
        if self._block is not None and self._block is not asyncio.current_task(self._loop):
            self._cancelled = self._block.cancel()
        return True

    def _revoke(self, reason: str) -> None:
        super()._revoke(reason)
        self.revoked.set()
        self._timer.cancel()  # the notice may be over before the lease was
        self._timer = self._loop.call_later(self.left, self._watch)

    def _stop(self) -> None:
        self._timer.cancel()
        if self._renewal is not asyncio.current_task(self._loop):  # which ends by itself after a loss
            self._renewal.cancel()

    async def release(self, done: str = "") -> None:
        """As Lease.release. It goes on in the background if the caller is cancelled; a further call waits for it."""
        if not self._begin_release(done):
            return
        self._stop()
        if self._sending is None or self._sending.done():
            self._sending = self._client.keep(self._send_release())
        await asyncio.shield(self._sending)

    async def _send_release(self) -> None:
        try:
            await self._client.insist(self._release)
        except LeaseLost:
            raise
        except FencelockError:
            if self._repaying is None or self._repaying.done():
                self._repaying = self._client.keep(self._client.run(self._owed()))
            raise

    async def __aenter__(self) -> AsyncLease:
        self.check()
        self._block = asyncio.current_task()
        self._cancelling = getattr(self._block, "cancelling", int)()
        return self

    async def __aexit__(self, kind: object, error: Optional[BaseException], trace: object) -> None:
        block, self._block = self._block, None
        if self._cancelled:  # Python 3.11 counts the cancellations of a task
            others = getattr(block, "uncancel", int)() > self._cancelling
            if isinstance(error, asyncio.CancelledError) and not others:
                self.check()  # raises LeaseLost
        if self._sending is not None and (error is not None or self._sending.done()):
            return  # the block has released it, and seen how that went
        try:
            await self.release()
        except FencelockError as failed:
            if error is None and isinstance(failed, LeaseLost):
                raise  # the block ran on without its lock
