"""What blocks of Python see of a lease, against a real server.

    cd verify && go test -count=1 ./languages -run /python
"""
# pyright: reportPrivateUsage=false, reportPossiblyUnboundVariable=false

from __future__ import annotations

import asyncio
import os
import sys
import threading
import unittest
from typing import List

from fencelock import AsyncClient, AsyncLease, Client, Lease, LeaseLost, NotAcquired, Unavailable

SERVER, FAULTS = os.environ.get("CONFORMANCE_SERVER", ""), os.environ.get("CONFORMANCE_FAULTS", "")
TTL = 6


@unittest.skipUnless(SERVER, "started by: cd verify && go test -count=1 ./languages")
class Blocks(unittest.TestCase):
    """`with`: a thread cannot be interrupted, so the loss is an event and comes up at the end of the block."""

    def setUp(self) -> None:
        self.client, self.key = Client(SERVER), f"blocks/{os.getpid()}/{self.id()}"

    def held(self) -> int:
        return len(self.client.line(self.key)["holders"])

    def test_releases_and_passes_on_what_was_raised(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            with self.client.acquire(self.key) as lease:
                self.assertEqual(self.held(), 1)
                raise ZeroDivisionError
        self.assertEqual(self.held(), 0)
        self.assertFalse(lease.lost.is_set())
        with self.assertRaises(LeaseLost):
            lease.check()

    def test_that_outlived_its_lease_raises(self) -> None:
        told: List[str] = []
        called = threading.Event()

        def on_lost(error: LeaseLost) -> None:
            told.append(error.reason)
            called.set()

        with self.assertRaises(LeaseLost) as lost:
            with self.client.acquire(self.key, ttl=TTL, on_lost=on_lost) as lease:
                self.client.break_claim(self.key, lease.token, "enough")
                self.assertTrue(lease.lost.wait(60))
                self.assertEqual(lease.left, 0)
        self.assertIn("enough", lost.exception.reason)
        self.assertTrue(called.wait(60))
        self.assertEqual(told, [lost.exception.reason])

    def test_that_was_broken_before_anybody_noticed_raises(self) -> None:
        with self.assertRaises(LeaseLost):
            with self.client.acquire(self.key) as lease:
                self.client.break_claim(self.key, lease.token, "enough")

    def test_an_error_of_the_block_outranks_the_loss(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            with self.client.acquire(self.key) as lease:
                self.client.break_claim(self.key, lease.token, "enough")
                raise ZeroDivisionError

    def test_an_unanswered_release_does_not_fail_the_block(self) -> None:
        client = Client(SERVER)
        with client.acquire(self.key) as lease:
            client._session._bases, client._session._timeout = [FAULTS + "/down"], 0.3
        with self.assertRaises(Unavailable):
            client.line(self.key)
        self.client.break_claim(self.key, lease.token, "tidy")

    def test_once_of_a_lost_lease_is_not_done(self) -> None:
        def work(lease: Lease) -> None:
            self.client.break_claim(self.key, lease.token, "enough")

        with self.assertRaises(LeaseLost):
            self.client.once(self.key, "ever", work)
        self.assertTrue(self.client.once(self.key, "ever", lambda lease: None))
        self.assertFalse(self.client.once(self.key, "ever", lambda lease: self.fail("done twice")))

    def test_threads_end_with_the_lease(self) -> None:
        with self.client.acquire(self.key):
            mine = [t for t in threading.enumerate() if self.key in t.name]
            self.assertEqual(len(mine), 2)
        for thread in mine:
            thread.join(5)
            self.assertFalse(thread.is_alive())

    def test_a_wrong_address_is_said_at_once(self) -> None:
        for servers in ([], ["127.0.0.1:7533"], ["http://"]):
            with self.assertRaises(ValueError):
                Client(*servers)


@unittest.skipUnless(SERVER, "started by: cd verify && go test -count=1 ./languages")
class AsyncBlocks(unittest.IsolatedAsyncioTestCase):
    """`async with`: the loss cancels the task of the block."""

    def setUp(self) -> None:
        self.client, self.key = AsyncClient(SERVER), f"blocks/{os.getpid()}/{self.id()}"

    async def held(self) -> int:
        return len((await self.client.line(self.key))["holders"])

    async def lose(self, lease: AsyncLease) -> None:
        await self.client.break_claim(self.key, lease.token, "enough")

    async def test_is_cancelled_by_the_loss(self) -> None:
        told: List[LeaseLost] = []
        cancelled = False
        with self.assertRaises(LeaseLost) as lost:
            async with await self.client.acquire(self.key, ttl=TTL, on_lost=told.append) as lease:
                try:
                    await self.lose(lease)
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    cancelled = True
                    raise
        self.assertTrue(cancelled)
        self.assertIn("enough", lost.exception.reason)
        self.assertEqual([error.reason for error in told], [lost.exception.reason])
        await asyncio.sleep(0)  # the task goes on
        if sys.version_info >= (3, 11):
            task = asyncio.current_task()
            self.assertTrue(task is not None and task.cancelling() == 0)

    async def test_that_swallows_the_cancellation_raises(self) -> None:
        with self.assertRaises(LeaseLost):
            async with await self.client.acquire(self.key, ttl=TTL) as lease:
                try:
                    await self.lose(lease)
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    pass
        await asyncio.sleep(0)

    async def test_cancelled_by_others_stays_cancelled_and_releases(self) -> None:
        entered = asyncio.Event()

        async def work() -> None:
            async with await self.client.acquire(self.key):
                entered.set()
                await asyncio.sleep(30)

        task = asyncio.ensure_future(work())
        await asyncio.wait_for(entered.wait(), 10)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual(await self.held(), 0)

    async def test_releases_and_passes_on_what_was_raised(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            async with await self.client.acquire(self.key):
                raise ZeroDivisionError
        self.assertEqual(await self.held(), 0)

    async def test_one_of_many_waits_without_a_thread_each(self) -> None:
        before = threading.active_count()
        async with await self.client.acquire(self.key):
            waits = [asyncio.ensure_future(self.client.acquire(self.key, wait=0.5)) for _ in range(50)]
            refused = await asyncio.gather(*waits, return_exceptions=True)
        self.assertTrue(all(isinstance(error, NotAcquired) for error in refused), refused)
        self.assertLessEqual(threading.active_count(), before + 8)  # of look-ups of names

    async def test_once_that_loses_its_lease_is_cancelled(self) -> None:
        async def work(lease: AsyncLease) -> None:
            await self.lose(lease)
            await asyncio.sleep(30)

        with self.assertRaises(LeaseLost):
            await self.client.once(self.key, "ever", work, ttl=TTL)


if __name__ == "__main__":
    unittest.main()
