"""Requests that are interrupted, and releases that no server answers at first, against a real server.

    cd verify && go test -count=1 ./languages -run /python
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Awaitable, Callable, List, Optional, Union, cast

from fencelock import AsyncClient, AsyncLease, Client, Lease, LeaseLost, Unavailable

SERVER = os.environ.get("CONFORMANCE_SERVER", "")


class Proxy(ThreadingHTTPServer):
    """Stands before the server. `meet` gets the number of each release before it is passed on.

    It returns whether the proxy passes the release on, or "cut": then the answer is lost.
    """

    daemon_threads = True

    def __init__(self, meet: Callable[[int], Union[bool, str]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.meet, self.releases, self.mutex = meet, 0, threading.Lock()
        self.granted: Callable[[], object] = lambda: None  # called before the answer to a claim is passed on
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the client has gone


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        proxy = cast(Proxy, self.server)
        met: Union[bool, str] = True
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/release":
            with proxy.mutex:
                proxy.releases += 1
                number = proxy.releases
            met = proxy.meet(number)
            if not met:
                self.close_connection = True
                return
        request = urllib.request.Request(SERVER + self.path, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                status, text = response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read()
        if self.path in ("/v1/acquire", "/v1/once"):
            proxy.granted()
        if met == "cut":
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def give_up_after(seconds: float, client: Union[Client, AsyncClient]) -> None:
    """Change how long a request may take, which is to be short only where it has no answer."""
    client._session._timeout = seconds


class World(unittest.TestCase):
    def setUp(self) -> None:
        self.direct, self.key = Client(SERVER), f"releases/{os.getpid()}/{self.id()}"

    def proxy(self, meet: Callable[[int], Union[bool, str]]) -> Proxy:
        proxy = Proxy(meet)
        self.addCleanup(proxy.server_close)
        self.addCleanup(proxy.shutdown)
        return proxy

    def held(self) -> int:
        return len(self.direct.line(self.key)["holders"])

    def wait_until(self, what: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not what():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)


@unittest.skipUnless(SERVER, "started by: cd verify && go test -count=1 ./languages")
class Interrupted(World):
    """A call that is interrupted as its lock is granted: by Ctrl-C, or by the time limit of a worker's task."""

    def client(self) -> Client:
        def granted() -> None:
            signal.pthread_kill(main, signal.SIGINT)
            interrupted.wait(60)

        interrupted, main = threading.Event(), threading.get_ident()
        self.addCleanup(interrupted.set)
        proxy = self.proxy(lambda number: True)
        proxy.granted = granted
        return Client(proxy.url)

    def test_acquire_leaves_no_lock(self) -> None:
        with self.assertRaises(KeyboardInterrupt):
            self.client().acquire(self.key, ttl=600)
        self.wait_until(lambda: self.held() == 0)

    def test_once_leaves_no_lock(self) -> None:
        with self.assertRaises(KeyboardInterrupt):
            self.client().once(self.key, "ever", lambda lease: self.fail("it ran"), ttl=600)
        self.wait_until(lambda: self.held() == 0)

    def test_program_that_ends_leaves_no_lock(self) -> None:
        program = "import sys, fencelock; fencelock.Client(sys.argv[1]).acquire(sys.argv[2], ttl=600)"
        proxy = self.proxy(lambda number: True)
        proxy.granted = lambda: (child.send_signal(signal.SIGINT), child.wait(60))
        with subprocess.Popen([sys.executable, "-c", program, proxy.url, self.key], stderr=subprocess.DEVNULL) as child:
            pass
        self.wait_until(lambda: self.held() == 0)


@unittest.skipUnless(SERVER, "started by: cd verify && go test -count=1 ./languages")
class Releases(World):
    def test_that_failed_is_sent_by_the_second_call(self) -> None:
        down = True
        client = Client(self.proxy(lambda number: not down).url)
        lease = client.acquire(self.key, ttl=600)
        give_up_after(0.5, client)
        with self.assertRaises(Unavailable):
            lease.release()
        self.assertEqual(self.held(), 1)
        down = False
        give_up_after(60, client)
        lease.release()
        self.assertEqual(self.held(), 0)
        lease.release()

    def test_that_failed_is_sent_in_the_background(self) -> None:
        down = True
        client = Client(self.proxy(lambda number: not down).url)
        with self.assertRaises(Unavailable), client.acquire(self.key, ttl=600) as lease:
            give_up_after(0.5, client)
            lease.release()
        down = False
        self.wait_until(lambda: self.held() == 0)
        with self.assertRaises(LeaseLost):
            lease.check()

    def test_at_the_end_of_a_block_that_failed_is_sent_in_the_background(self) -> None:
        down = True
        client = Client(self.proxy(lambda number: not down).url)
        with client.acquire(self.key, ttl=600):
            give_up_after(0.5, client)
        down = False
        self.wait_until(lambda: self.held() == 0)

    def test_that_is_interrupted_goes_on(self) -> None:
        def meet(number: int) -> bool:
            if number > 1:
                return True
            signal.raise_signal(signal.SIGINT)  # Python's handler runs in the main thread
            interrupted.wait(60)
            return False

        interrupted = threading.Event()
        lease = Client(self.proxy(meet).url).acquire(self.key, ttl=600)
        with self.assertRaises(KeyboardInterrupt):
            lease.release()
        interrupted.set()
        self.wait_until(lambda: self.held() == 0)
        lease.release()

    def test_of_a_slot_that_failed_notes_the_slot(self) -> None:
        down = True
        client = Client(self.proxy(lambda number: not down).url)
        with self.assertRaises(Unavailable):
            client.once(self.key, "ever", lambda lease: give_up_after(0.5, client), ttl=600)
        down = False
        self.wait_until(lambda: self.held() == 0)
        self.assertFalse(self.direct.once(self.key, "ever", lambda lease: self.fail("done twice")))

    def test_of_a_slot_whose_answer_is_lost_is_known(self) -> None:
        client = Client(self.proxy(lambda number: "cut" if number == 1 else True).url)
        self.assertTrue(client.once(self.key, "24h", lambda lease: None, ttl=600))
        self.assertEqual(self.held(), 0)
        self.assertFalse(self.direct.once(self.key, "24h", lambda lease: self.fail("done twice")))

    def test_of_a_slot_that_came_too_late_has_done_no_slot(self) -> None:
        def meet(number: int) -> bool:
            if number == 1:
                self.direct.break_claim(self.key, lease[0].token, "enough")
            return number > 1

        lease: List[Lease] = []
        with self.assertRaises(LeaseLost):
            Client(self.proxy(meet).url).once(self.key, "ever", lease.append, ttl=600)
        self.assertTrue(self.direct.once(self.key, "ever", lambda lease: None))

    def test_by_the_work_of_a_slot_leaves_the_slot_open(self) -> None:
        with self.assertRaises(LeaseLost):
            self.direct.once(self.key, "ever", Lease.release)
        self.assertTrue(self.direct.once(self.key, "ever", lambda lease: None))


@unittest.skipUnless(SERVER, "started by: cd verify && go test -count=1 ./languages")
class AsyncReleases(World):
    def run_async(self, client: AsyncClient, work: Callable[[AsyncLease], Awaitable[object]]) -> None:
        async def main() -> None:
            await work(await client.acquire(self.key, ttl=600))

        asyncio.run(main())

    def holding(self) -> "tuple[AsyncClient, threading.Event, threading.Event]":
        """A client whose first release arrives, and is not passed on before go is set."""
        arrived, go = threading.Event(), threading.Event()
        self.addCleanup(go.set)

        def meet(number: int) -> bool:
            arrived.set()
            if number == 1:
                go.wait(60)
            return number > 1

        return AsyncClient(self.proxy(meet).url), arrived, go

    async def cancel(self, lease: AsyncLease, arrived: threading.Event) -> None:
        """Cancel a release once it is under way."""
        task = asyncio.ensure_future(lease.release())
        await asyncio.get_running_loop().run_in_executor(None, arrived.wait)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task

    def test_that_is_cancelled_is_awaited_by_the_second_call(self) -> None:
        client, arrived, go = self.holding()

        async def work(lease: AsyncLease) -> None:
            await self.cancel(lease, arrived)
            go.set()
            await lease.release()
            self.assertEqual(self.held(), 0)
            await lease.release()

        self.run_async(client, work)

    def test_that_is_cancelled_goes_on_without_a_second_call(self) -> None:
        client, arrived, go = self.holding()

        async def work(lease: AsyncLease) -> None:
            await self.cancel(lease, arrived)
            go.set()
            await asyncio.get_running_loop().run_in_executor(None, self.wait_until, lambda: self.held() == 0)

        self.run_async(client, work)

    def test_that_is_cancelled_at_the_end_of_the_loop_is_sent_again(self) -> None:
        client, arrived, _ = self.holding()
        self.run_async(client, lambda lease: self.cancel(lease, arrived))
        self.assertEqual(self.held(), 0)

    def test_that_is_cancelled_in_a_block_is_over_when_the_block_is(self) -> None:
        client, arrived, go = self.holding()

        async def work(lease: AsyncLease) -> None:
            async with lease:
                await self.cancel(lease, arrived)
                go.set()
            self.assertEqual(self.held(), 0)

        self.run_async(client, work)

    def test_that_failed_is_sent_by_the_second_call(self) -> None:
        down = True
        client = AsyncClient(self.proxy(lambda number: not down).url)

        async def work(lease: AsyncLease) -> None:
            nonlocal down
            give_up_after(0.5, client)
            with self.assertRaises(Unavailable):
                await lease.release()
            self.assertEqual(self.held(), 1)
            down = False
            give_up_after(60, client)
            await lease.release()
            self.assertEqual(self.held(), 0)

        self.run_async(client, work)

    def test_that_failed_is_sent_in_the_background(self) -> None:
        down = True
        client = AsyncClient(self.proxy(lambda number: not down).url)

        async def work(lease: AsyncLease) -> None:
            nonlocal down
            async with lease:
                give_up_after(0.5, client)
            down = False
            await asyncio.get_running_loop().run_in_executor(None, self.wait_until, lambda: self.held() == 0)

        self.run_async(client, work)

    def test_of_a_slot_that_came_too_late_has_done_no_slot(self) -> None:
        def meet(number: int) -> bool:
            if number == 1:
                self.direct.break_claim(self.key, leases[0].token, "enough")
            return number > 1

        leases: List[AsyncLease] = []

        async def work(lease: AsyncLease) -> None:
            leases.append(lease)

        with self.assertRaises(LeaseLost):
            asyncio.run(AsyncClient(self.proxy(meet).url).once(self.key, "ever", work, ttl=600))
        self.assertTrue(self.direct.once(self.key, "ever", lambda lease: None))

    def test_by_the_work_of_a_slot_leaves_the_slot_open(self) -> None:
        async def main() -> None:
            client = AsyncClient(SERVER)
            with self.assertRaises(LeaseLost):
                await client.once(self.key, "ever", AsyncLease.release)

        asyncio.run(main())
        self.assertTrue(self.direct.once(self.key, "ever", lambda lease: None))


@unittest.skipUnless(SERVER, "started by: cd verify && go test -count=1 ./languages")
class BusyExecutor(World):
    def test_of_the_program_keeps_no_lease_from_its_requests(self) -> None:
        """asyncio looks up the names of hosts in the executor of the loop, which the program may fill."""
        finished = threading.Event()

        async def main() -> None:
            loop = asyncio.get_running_loop()
            loop.set_default_executor(ThreadPoolExecutor(1))
            loop.run_in_executor(None, finished.wait)
            try:
                lease = await AsyncClient(SERVER.replace("127.0.0.1", "localhost")).acquire(self.key, ttl=600)
                await lease.release()
                with self.assertRaises(Unavailable):
                    await AsyncClient("http://host.invalid", timeout=0.5).acquire(self.key)
            finally:
                finished.set()

        asyncio.run(main())
        self.assertEqual(self.held(), 0)


@unittest.skipUnless(SERVER, "started by: cd verify && go test -count=1 ./languages")
class Found(unittest.IsolatedAsyncioTestCase):
    """A loss that the block itself finds is told by what check raises, and by nothing else."""

    async def overrun(self, use: Callable[[AsyncLease], Awaitable[object]]) -> List[str]:
        """Use a lease whose end the loop has not seen yet, in its block; then go on after the block."""
        client, seen = AsyncClient(SERVER), list[str]()
        try:
            async with await client.acquire(f"found/{os.getpid()}/{self.id()}", ttl=0.3) as lease:
                while lease.left > 0:
                    time.sleep(0.01)  # keeps the loop busy
                await use(lease)
        except LeaseLost as error:
            self.assertIn("too busy", error.reason)
            seen.append("lost")
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            seen.append("cancelled")
        return seen

    async def test_by_check(self) -> None:
        async def use(lease: AsyncLease) -> None:
            lease.check()

        self.assertEqual(await self.overrun(use), ["lost"])

    async def test_by_check_and_caught(self) -> None:
        caught: Optional[LeaseLost] = None

        async def use(lease: AsyncLease) -> None:
            nonlocal caught
            try:
                lease.check()
            except LeaseLost as lost:
                caught = lost
            await asyncio.sleep(0.01)

        self.assertEqual(await self.overrun(use), ["lost"])
        self.assertIsNotNone(caught)

    async def test_by_release(self) -> None:
        self.assertEqual(await self.overrun(AsyncLease.release), ["lost"])

    async def test_by_the_end_of_the_block(self) -> None:
        async def use(lease: AsyncLease) -> None:
            pass

        self.assertEqual(await self.overrun(use), ["lost"])


if __name__ == "__main__":
    unittest.main()
