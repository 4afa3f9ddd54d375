"""Plays ../../conformance/cases.json with both clients; its README.md has the steps.

    cd verify && go test -count=1 ./languages -run /python
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import signal
import time
import unittest
import urllib.error
import urllib.request
from typing import Any, Dict, List, Type, Union

from fencelock import AsyncClient, AsyncLease, Client, FencelockError, Lease, NotAcquired

Step = Dict[str, Any]
AnyClient = Union[Client, AsyncClient]
AnyLease = Union[Lease, AsyncLease]

PATIENCE = 60  # seconds, for what must happen


class Player:
    """Plays one case with one of the clients."""

    def __init__(self, kind: Type[AnyClient], key: str) -> None:
        self.kind, self.key = kind, key
        self.server, self.faults = os.environ["CONFORMANCE_SERVER"], os.environ["CONFORMANCE_FAULTS"]
        self.client = kind(self.server)
        self.leases: Dict[str, AnyLease] = {}
        self.started: Dict[str, asyncio.Task[AnyLease]] = {}

    async def play(self, steps: List[Step]) -> None:
        try:
            for step in steps:
                expect = step.get("expect", "")
                try:
                    await getattr(self, step["do"])(step)
                except FencelockError as error:
                    assert error.slug == expect, f"{step}: {error!r} ({error.slug})"
                    if "holder" in step:
                        assert isinstance(error, NotAcquired), step
                        holder = error.holders[0]
                        assert step["holder"].items() <= holder.items(), f"{step}: {holder}"
                else:
                    assert not expect, f"{step} went well"
        finally:
            await self.thaw({})
            for lease in self.leases.values():
                try:
                    await self.run(lease.release)
                except FencelockError:
                    pass

    async def run(self, method: Any, *args: Any, **options: Any) -> Any:
        """Call a method of the blocking client in a thread, and one of the other client here."""
        if inspect.iscoroutinefunction(method):
            return await method(*args, **options)
        return await asyncio.get_running_loop().run_in_executor(None, lambda: method(*args, **options))

    async def _acquire(self, step: Step) -> AnyLease:
        options = {k: step[k] for k in ("kind", "permits", "size", "note", "owner", "request_id") if k in step}
        options.update({k: step[k + "_ms"] / 1000 for k in ("ttl", "wait") if k + "_ms" in step})
        client = self.client
        if "through" in step:
            names = [self.server if name == "server" else f"{self.faults}/{name}" for name in step["through"]]
            client = self.kind(*names, timeout=2 if step.get("expect") == "unavailable" else PATIENCE)
        return await self.run(client.acquire, self.key, **options)

    async def acquire(self, step: Step) -> None:
        self.leases[step["lease"]] = await self._acquire(step)

    async def start(self, step: Step) -> None:
        self.started[step["lease"]] = asyncio.ensure_future(self._acquire(step))

    async def finish(self, step: Step) -> None:
        self.leases[step["lease"]] = await self.started.pop(step["lease"])

    async def cancel(self, step: Step) -> None:
        task = self.started.pop(step["lease"])
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return
        raise AssertionError("a call that was cancelled went well")

    async def line(self, step: Step) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            line = await self.run(self.client.line, self.key)
            seen = {part: [standing["owner"] for standing in line[part]] for part in ("holders", "waiters")}
            if seen == {part: step[part] for part in seen}:
                return
            assert time.monotonic() < end, f"{step}: {line}"
            await asyncio.sleep(0.02)

    async def check(self, step: Step) -> None:
        self.leases[step["lease"]].check()

    async def release(self, step: Step) -> None:
        await self.run(self.leases[step["lease"]].release)
        await self.run(self.leases[step["lease"]].release)  # does nothing

    async def _is_lost(self, lease: AnyLease, seconds: float) -> bool:
        if isinstance(lease, Lease):
            return await self.run(lease.lost.wait, seconds)
        try:
            return await asyncio.wait_for(lease.lost.wait(), seconds)
        except asyncio.TimeoutError:
            return False

    async def outlives(self, step: Step) -> None:
        lease = self.leases[step["lease"]]
        assert not await self._is_lost(lease, step["ms"] / 1000), step
        lease.check()

    async def lost(self, step: Step) -> None:
        lease = self.leases[step["lease"]]
        assert await self._is_lost(lease, PATIENCE), step
        try:
            lease.check()
        except FencelockError as error:
            assert step["reason"] in str(error), f"{step}: {error}"
        else:
            raise AssertionError(f"{step}: check says that it is held")

    async def revoked(self, step: Step) -> None:
        lease = self.leases[step["lease"]]
        end = time.monotonic() + PATIENCE
        while not lease.revoked.is_set():
            assert time.monotonic() < end, step
            await asyncio.sleep(0.02)
        assert lease.revocation == step["reason"], f"{step}: {lease.revocation}"
        lease.check()

    async def rises(self, step: Step) -> None:
        tokens = [self.leases[name].token for name in step["leases"]]
        assert all(a < b for a, b in zip(tokens, tokens[1:])), f"{step}: {tokens}"

    async def same(self, step: Step) -> None:
        seen = {(self.leases[name].handle, self.leases[name].token) for name in step["leases"]}
        assert len(seen) == 1, f"{step}: {seen}"

    async def once(self, step: Step) -> None:
        ran: List[str] = []

        def work(lease: Lease) -> None:
            lease.check()
            ran.append(lease.handle)
            if step["work"] == "fails":
                raise ArithmeticError

        async def async_work(lease: AsyncLease) -> None:
            ran.append(lease.handle)
            if step["work"] == "fails":
                raise ArithmeticError

        it: Any = work if self.kind is Client else async_work
        try:
            said = await self.run(self.client.once, self.key, step["slot"], it, owner=step["owner"])
        except ArithmeticError:
            said = True
            assert step["work"] == "fails", step
        assert said == step["ran"] == bool(ran), f"{step}: {said}, {ran}"

    async def post(self, step: Step) -> None:
        body = {name: self._fill(value) for name, value in step["body"].items()}
        request = urllib.request.Request(self.server + step["path"], json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        status, text = await self.run(_post, request)
        problem = json.loads(text)
        assert status == step["status"], f"{step}: {status} {problem}"
        if "problem" in step:
            assert problem["type"] == "/problems/" + step["problem"], f"{step}: {problem}"

    def _fill(self, value: Any) -> Any:
        if value == "$k":
            return self.key
        return self.leases[value[1:]].handle if str(value).startswith("$") else value

    async def freeze(self, step: Step) -> None:
        os.kill(int(os.environ["CONFORMANCE_PID"]), signal.SIGSTOP)

    async def thaw(self, step: Step) -> None:
        os.kill(int(os.environ["CONFORMANCE_PID"]), signal.SIGCONT)


# The name of a step is a Python keyword.
async def _break(self: Player, step: Step) -> None:
    await self.run(self.client.break_claim, self.key, self.leases[step["lease"]].token, step["reason"],
                   notice=step.get("notice_ms", 0) / 1000)


setattr(Player, "break", _break)


def _post(request: urllib.request.Request) -> Any:
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@unittest.skipUnless("CONFORMANCE_SERVER" in os.environ, "started by: cd verify && go test -count=1 ./languages")
class Blocking(unittest.TestCase):
    """One test for each case, with Client."""

    kind: Type[AnyClient] = Client


class Asyncio(Blocking):
    """One test for each case, with AsyncClient."""

    kind = AsyncClient


def _add(to: Type[Blocking], number: int, case: Dict[str, Any]) -> None:
    kind = to.kind

    def test(self: Blocking) -> None:
        for i, key in enumerate(case.get("each_key", ["k"])):
            asyncio.run(Player(kind, f"{kind.__name__}/{number}/{i}/{key}").play(case["steps"]))
        print(f"played {kind.__name__}: {case['name']}", flush=True)

    setattr(to, f"test_{number:02}_{re.sub('[^a-z]+', '_', case['name'])}", test)


_CASES = os.path.join(os.path.dirname(__file__), "../../conformance/cases.json")
with open(os.environ.get("CONFORMANCE_CASES", _CASES), encoding="utf-8") as _file:
    for _number, _case in enumerate(json.load(_file)["cases"]):
        _add(Asyncio, _number, _case)
        if "cancel" not in _case.get("needs", []):  # a thread cannot be interrupted
            _add(Blocking, _number, _case)

if __name__ == "__main__":
    unittest.main()
