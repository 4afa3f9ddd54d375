"""What forked processes see of a lease, with os.fork and multiprocessing, against a real server.

    cd verify && go test -count=1 ./languages -run /python
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import ctypes
import json
import multiprocessing
import os
import sys
import threading
import unittest
import warnings
from typing import Any, Callable, List, Union

from fencelock import AsyncClient, AsyncLease, Client, Lease, LeaseLost, NotAcquired

SERVER = os.environ.get("CONFORMANCE_SERVER", "")
FORKS = bool(SERVER) and hasattr(os, "fork")


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: the clients have threads
        return os.fork()


class Pipe:
    """Carries what a fork has seen to the test."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def tell(self, seen: object) -> None:
        os.write(self._write, json.dumps(seen).encode())

    def told(self) -> Any:
        """What the fork told, once no process can tell more."""
        os.close(self._write)
        with open(self._read, "rb") as pipe:
            return json.loads(pipe.read() or b'"the fork told nothing"')


def fork_of_a_server() -> int:
    """Forks as the master of uWSGI does: no hook of Python runs, and the interpreter's lock is held. Without it, as with
    CDLL, the fork may wait forever for another thread of its parent to give that lock back."""
    return int(ctypes.PyDLL(None).fork())


def in_fork(what: Callable[[], object], fork: Callable[[], int] = fork) -> Any:
    """What `what` returns in a fork, or the name of what it raises."""
    pipe = Pipe()
    child = fork()
    if child == 0:
        try:
            try:
                pipe.tell(what())
            except BaseException as error:
                pipe.tell(f"{type(error).__name__}: {error}")
        finally:
            os._exit(0)
    told = pipe.told()
    os.waitpid(child, 0)
    return told


def look(lease: Union[Lease, AsyncLease]) -> List[object]:
    """What a process sees of a lease."""
    try:
        lease.check()
        said = "held"
    except LeaseLost as lost:
        said = lost.reason
    return [said, lease.left, lease.lost.is_set()]


NOT_HERE = [f"process {os.getpid()} acquired it, and a fork of that process does not hold it", 0.0, True]


@unittest.skipUnless(FORKS, "started by: cd verify && go test -count=1 ./languages")
class Forks(unittest.TestCase):
    """A lease belongs to the process that acquired it."""

    def setUp(self) -> None:
        self.client, self.key = Client(SERVER), f"forks/{os.getpid()}/{self.id()}"

    def held(self) -> int:
        return len(self.client.line(self.key)["holders"])

    def test_a_fork_that_leaves_the_block_releases_nothing(self) -> None:
        with self.client.acquire(self.key) as lease:
            pipe = Pipe()
            child = fork()
            if child == 0:
                try:
                    with lease:  # the end of the block, as a child that falls out of it sees it
                        pass
                    lease.release()
                    lease.release(done="ever")
                    pipe.tell("went on")
                finally:
                    os._exit(0)
            self.assertEqual(pipe.told(), "went on")
            os.waitpid(child, 0)
            self.assertEqual(self.held(), 1)
            lease.check()
            with self.assertRaises(NotAcquired):
                self.client.acquire(self.key)
        self.assertEqual(self.held(), 0)

    def test_a_fork_that_exits_in_the_block_releases_nothing(self) -> None:
        with self.client.acquire(self.key) as lease:
            child = fork()
            if child == 0:
                try:
                    with lease:
                        sys.exit(3)
                finally:
                    os._exit(4)
            os.waitpid(child, 0)
            self.assertEqual(self.held(), 1)
            lease.check()

    def test_a_fork_knows_that_it_does_not_hold_the_lease(self) -> None:
        with self.client.acquire(self.key) as lease:
            self.assertEqual(in_fork(lambda: look(lease)), NOT_HERE)
            self.assertTrue(in_fork(lambda: lease.lost.wait(60)), "it waits for what nobody tells")
            self.assertEqual(in_fork(lambda: in_fork(lambda: look(lease))), NOT_HERE)
            lease.check()

    def test_a_daemon_knows_that_it_does_not_hold_the_lease_of_its_parent(self) -> None:
        pipe = Pipe()
        parent = fork()
        if parent == 0:
            lease = Client(SERVER).acquire(self.key, ttl=5)
            if fork() == 0:
                os.setsid()
                pipe.tell(look(lease)[1:])
            os._exit(0)  # the parent, while the daemon goes on
        self.assertEqual(pipe.told(), [0.0, True])
        os.waitpid(parent, 0)

    def test_a_fork_releases_nothing_while_another_thread_was_in_the_lease(self) -> None:
        with self.client.acquire(self.key) as lease:
            entered, leave = threading.Event(), threading.Event()

            def hold() -> None:
                with lease._mutex:
                    entered.set()
                    leave.wait(60)

            thread = threading.Thread(target=hold)
            thread.start()
            entered.wait(60)
            try:
                for how in fork, fork_of_a_server:
                    self.assertEqual(in_fork(lambda: [lease.release(), look(lease)], how), [None, NOT_HERE])
            finally:
                leave.set()
                thread.join()

    def test_a_fork_that_returns_from_the_work_has_done_no_slot(self) -> None:
        pipe, mine = Pipe(), os.getpid()

        def work(lease: Lease) -> None:
            if fork() != 0:
                os.wait()

        try:
            ran: object = self.client.once(self.key, "ever", work)
        except LeaseLost as lost:
            ran = lost.reason
        if os.getpid() != mine:
            try:
                pipe.tell(ran)
            finally:
                os._exit(0)
        self.assertIs(ran, True)
        self.assertEqual(pipe.told(), NOT_HERE[0])
        self.assertFalse(self.client.once(self.key, "ever", lambda lease: self.fail("done twice")))

    def test_a_client_made_before_the_fork_has_leases_of_its_own(self) -> None:
        """As gunicorn --preload and celery do it: the program is loaded, then the workers are forked."""
        with self.client.acquire(self.key, ttl=5) as lease:
            def worker() -> List[object]:
                with self.client.acquire(self.key + "/worker", wait=30, ttl=5) as mine:
                    return [look(mine)[0], mine.token > 0, look(lease)]

            for _ in range(3):
                self.assertEqual(in_fork(worker), ["held", True, NOT_HERE])
                self.assertEqual(in_fork(worker, fork_of_a_server), ["held", True, NOT_HERE])
            lease.check()
            self.assertEqual(self.held(), 1)
        self.assertEqual(self.client.line(self.key + "/worker")["holders"], [])

    def test_workers_of_multiprocessing_share_the_client_and_not_the_lease(self) -> None:
        with self.client.acquire(self.key) as lease:
            context = multiprocessing.get_context("fork")
            results: Any = context.SimpleQueue()

            def worker() -> None:
                with lease, self.client.acquire(self.key + "/worker", wait=30) as mine:
                    results.put([look(mine)[0], look(lease)])

            workers = [context.Process(target=worker) for _ in range(3)]
            for each in workers:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)
                    each.start()
            for each in workers:
                self.assertEqual(results.get(), ["held", NOT_HERE])
            for each in workers:
                each.join()
                self.assertEqual(each.exitcode, 0)
            lease.check()
            self.assertEqual(self.held(), 1)


@unittest.skipUnless(FORKS, "started by: cd verify && go test -count=1 ./languages")
class AsyncForks(unittest.IsolatedAsyncioTestCase):
    """The same in an event loop, which goes on in the fork."""

    def setUp(self) -> None:
        self.client, self.key = AsyncClient(SERVER), f"forks/{os.getpid()}/{self.id()}"

    async def held(self) -> int:
        return len((await self.client.line(self.key))["holders"])

    async def test_a_fork_that_leaves_the_block_releases_nothing(self) -> None:
        pipe, mine = Pipe(), os.getpid()
        seen: List[object] = []
        async with await self.client.acquire(self.key) as lease:
            if (child := fork()) == 0:
                seen = look(lease) + [await lease.lost.wait()]
            else:
                os.waitpid(child, os.WNOHANG)
        if os.getpid() != mine:
            try:
                await lease.release(done="ever")
                pipe.tell(seen)
            finally:
                os._exit(0)
        self.assertEqual(pipe.told(), NOT_HERE + [True])

    async def test_the_lock_of_the_parent_outlives_the_fork(self) -> None:
        async with await self.client.acquire(self.key) as lease:
            pipe = Pipe()
            if (child := fork()) == 0:
                try:
                    async with AsyncForked(lease):
                        pass
                    await lease.release()
                    pipe.tell(look(lease))
                finally:
                    os._exit(0)
            self.assertEqual(pipe.told(), NOT_HERE)
            os.waitpid(child, 0)
            self.assertEqual(await self.held(), 1)
            lease.check()

    async def test_the_loop_of_a_fork_renews_nothing(self) -> None:
        lease = await self.client.acquire(self.key)
        renewals = lease._renewals()
        renewals.send(None)  # the pause before the renewal

        def wake() -> List[object]:
            try:
                return ["sent", repr(renewals.send(None))]
            except StopIteration:
                return ["ended", lease._error is not None]

        self.assertEqual(in_fork(wake), ["ended", True])
        await lease.release()

    async def test_a_client_made_before_the_fork_has_leases_of_its_own(self) -> None:
        async def worker(lease: AsyncLease) -> List[object]:
            async with await self.client.acquire(self.key + "/worker", wait=30) as mine:
                return [look(mine)[0], look(lease)]

        async with await self.client.acquire(self.key) as lease:
            seen = in_fork(lambda: asyncio.run(worker(lease)))
            self.assertEqual(seen, ["held", NOT_HERE])
            lease.check()
            self.assertEqual(await self.held(), 1)

    async def test_a_fork_that_returns_from_the_work_has_done_no_slot(self) -> None:
        pipe, mine = Pipe(), os.getpid()

        async def work(lease: AsyncLease) -> None:
            if fork() != 0:
                os.wait()

        try:
            ran: object = await self.client.once(self.key, "ever", work)
        except LeaseLost as lost:
            ran = lost.reason
        if os.getpid() != mine:
            try:
                pipe.tell(ran)
            finally:
                os._exit(0)
        self.assertIs(ran, True)
        self.assertEqual(pipe.told(), NOT_HERE[0])


class AsyncForked:
    """Leaves the block of a lease, as a fork that falls out of it does."""

    def __init__(self, lease: AsyncLease) -> None:
        self._lease = lease

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *error: Any) -> None:
        await self._lease.__aexit__(*error)


if __name__ == "__main__":
    unittest.main()
