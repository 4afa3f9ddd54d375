"""The rules of the protocol in virtual time: no server, no threads, no waiting.

    python3 -m unittest tests/protocol.py
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import json
import os
import traceback
import unittest
from typing import Any, Dict, List, Optional, Union
from unittest import mock

from fencelock import AsyncClient, Client, FencelockError, LeaseLost, NotAcquired, Unavailable
from fencelock import _protocol as protocol
from fencelock._protocol import Answer, LeaseCore, Outcome, Reply, Send, Session, Steps

GRANT: Dict[str, Any] = {"key": "k", "handle": "h", "token": "7", "ttl_ms": 30_000, "left_ms": 30_000, "waited_ms": 0,
         "request_id": "r"}


def answer(status: int, slug: str = "", retry_after: Optional[str] = None, **members: Any) -> Answer:
    body = {"type": "/problems/" + slug, "detail": slug, **members} if slug else members
    return Answer(status, retry_after, json.dumps(body).encode())


class Settings(unittest.TestCase):
    def test_what_shells_and_editors_leave_around_a_token_is_not_part_of_it(self) -> None:
        for raw in ("s3cret", " s3cret\r\n", '"s3cret"', "'s3cret'\n", "\ufeffs3cret"):
            self.assertEqual(protocol.clean(raw), "s3cret")
        self.assertEqual(protocol.clean(""), "")


class Clock(unittest.TestCase):
    """A conversation whose other side is the test."""

    time: float

    def setUp(self) -> None:
        self.time = 1000.0
        patch = mock.patch.object(protocol, "now", lambda: self.time)
        patch.start()
        self.addCleanup(patch.stop)
        self.session = Session(["http://one/", "http://two"], "secret", 10)

    def claim(self) -> Any:
        return self.session.claim("k", ttl=30, request_id="request-1")

    def next(self, steps: Steps[Any], outcome: Outcome = None) -> Send:
        """The next request, after the pauses before it."""
        step: Union[Send, float] = steps.send(outcome)
        while not isinstance(step, Send):
            self.time += step
            step = steps.send(None)
        return step

    def end(self, steps: Steps[Any], outcome: Outcome) -> Any:
        with self.assertRaises(StopIteration) as stop:
            steps.send(outcome)
        return stop.exception.value

    def lease(self, **members: Any) -> LeaseCore:
        return LeaseCore(self.session, Reply({**GRANT, **members}, self.time, ""))


class Deadline(Clock):
    def test_counts_from_before_the_request_was_sent(self) -> None:
        sent = self.time
        self.time += 4  # the answer took that long
        lease = LeaseCore(self.session, Reply(GRANT, sent, ""))
        self.assertEqual(lease.left, 26)

    def test_counts_from_the_grant_if_the_request_waited_in_line(self) -> None:
        sent = self.time
        self.time += 50
        lease = LeaseCore(self.session, Reply({**GRANT, "waited_ms": 49_000}, sent, ""))
        self.assertEqual(lease.left, 29)

    def test_is_not_moved_by_a_wait_that_is_longer_than_the_request(self) -> None:
        sent = self.time
        self.time += 1
        lease = LeaseCore(self.session, Reply({**GRANT, "waited_ms": 3_600_000}, sent, ""))
        self.assertEqual(lease.left, 30)

    def test_of_a_renewal_counts_from_its_sending(self) -> None:
        lease = self.lease()
        steps = lease._renewals()
        self.next(steps)
        self.assertEqual(self.time, 1010, "the renewal comes at a third of the lease")
        self.time += 3
        steps.send(answer(200, key="k", token="7", left_ms=30_000))
        self.assertEqual(lease.left, 27)

    def test_ends_the_lease_by_the_own_clock(self) -> None:
        lease = self.lease()
        self.time += 29.99
        lease.check()
        self.time += 0.01
        with self.assertRaises(LeaseLost) as lost:
            lease.check()
        self.assertIn("not renewed in time", lost.exception.reason)

    def test_is_not_moved_by_renewals_without_an_answer(self) -> None:
        lease = self.lease()
        steps = lease._renewals()
        send = self.next(steps)
        asked: List[str] = []
        while self.time < 1029.5:
            asked.append(send.url)
            self.assertLessEqual(self.time + send.timeout, 1030.1)
            self.time += send.timeout
            send = self.next(steps, OSError("cut"))
        self.assertEqual(set(asked), {"http://one/v1/renew", "http://two/v1/renew"})
        self.assertLess(len(asked), 40)
        self.time = 1030
        with self.assertRaises(LeaseLost):
            lease.check()

    def test_a_refused_renewal_is_tried_again_and_named(self) -> None:
        lease = self.lease()
        steps = lease._renewals()
        self.next(steps)
        self.next(steps, answer(403, "forbidden"))
        self.time = 1030
        with self.assertRaises(LeaseLost) as lost:
            lease.check()
        self.assertIn("forbidden", lost.exception.reason)


class Waiting(Clock):
    def test_is_cut_into_polls_of_one_claim(self) -> None:
        steps = self.session.acquire(self.claim(), 130)
        send = self.next(steps)
        bodies: List[Any] = []
        for _ in range(3):
            bodies.append(json.loads(send.body or b""))
            self.assertGreater(send.timeout, 60 if len(bodies) < 3 else 10)
            self.time += 60 if len(bodies) < 3 else 10
            if len(bodies) < 3:
                send = self.next(steps, answer(503, "come-again", "0"))
        with self.assertRaises(NotAcquired):
            steps.send(answer(409, "not-acquired", holders=[]))
        self.assertEqual([b.get("stay", False) for b in bodies], [True, True, False])
        self.assertEqual({b["request_id"] for b in bodies}, {"request-1"})
        self.assertEqual(bodies[0]["wait"], "60000ms")

    def test_for_ever_goes_on(self) -> None:
        steps = self.session.acquire(self.claim(), float("inf"))
        send = self.next(steps)
        for _ in range(1000):
            self.time += 60
            send = self.next(steps, answer(503, "come-again", "0"))
        self.assertTrue(json.loads(send.body or b"")["stay"])
        self.assertEqual(self.end(steps, answer(200, **GRANT)).data["token"], "7")

    def test_keeps_the_slot_that_the_server_chose(self) -> None:
        claim = self.session.claim("k", ttl=30, slot="5m")
        steps = self.session.acquire(claim, 100)
        self.assertEqual(json.loads(self.next(steps).body or b"")["slot"], "5m")
        again = answer(503, "come-again", "0", slot="2026-11-25T13:00:00Z")
        self.assertEqual(json.loads(self.next(steps, again).body or b"")["slot"], "2026-11-25T13:00:00Z")

    def test_of_a_slot_says_how_old_it_is_when_it_is_repeated(self) -> None:
        steps = self.session.acquire(self.session.claim("k", ttl=30, slot="1h"), 100)
        self.assertNotIn("since", json.loads(self.next(steps).body or b""))
        self.time += 5
        again = json.loads(self.next(steps, OSError("cut")).body or b"")
        self.assertEqual((again["slot"], again["since"]), ("1h", protocol.duration(self.time - 1000)))

    def test_that_was_refused_without_an_answer_is_refused(self) -> None:
        steps = self.session.acquire(self.claim(), 5)
        self.next(steps)
        self.next(steps, OSError("cut"))
        with self.assertRaises(NotAcquired):
            steps.send(answer(410, "lost", reason="the claim left the line"))

    def test_goes_on_when_servers_fail_and_come_back(self) -> None:
        steps = self.session.acquire(self.claim(), 300)
        self.next(steps)
        for _ in range(100):
            self.next(steps, ConnectionRefusedError())
        self.assertLess(self.time, 1300)
        self.assertEqual(self.end(steps, answer(200, **GRANT)).data["token"], "7")


class Repeating(Clock):
    def test_asks_the_next_server_and_stays_there(self) -> None:
        steps = self.session.line("k")
        self.assertEqual(self.next(steps).url, "http://one/v1/line?key=k")
        self.assertEqual(self.next(steps, OSError()).url, "http://two/v1/line?key=k")
        self.assertEqual(self.time, 1000, "the next one is asked at once")
        self.end(steps, answer(200, key="k"))
        self.assertEqual(self.next(self.session.line("k")).url, "http://two/v1/line?key=k")

    def test_ends_with_unavailable_in_time(self) -> None:
        steps = self.session.acquire(self.claim(), 0)
        send = self.next(steps)
        with self.assertRaises(Unavailable):
            while True:
                self.time += send.timeout
                send = self.next(steps, TimeoutError())
        self.assertLessEqual(self.time, 1010.1)

    def test_ends_at_once_when_the_store_refuses_for_good(self) -> None:
        steps = self.session.acquire(self.claim(), 60)
        self.next(steps)
        self.next(steps, answer(503, "refused-for-now", "1"))
        with self.assertRaises(Unavailable) as refused:
            steps.send(answer(503, "refused"))
        self.assertEqual(refused.exception.slug, "refused")

    def test_obeys_retry_after(self) -> None:
        steps = self.session.acquire(self.claim(), 0)
        self.next(steps)
        self.assertEqual(self.next(steps, answer(503, "come-again", "1")).url, "http://one/v1/acquire")
        self.assertEqual(self.time, 1001)

    def test_follows_a_server_that_names_another_one(self) -> None:
        steps = self.session.acquire(self.claim(), 0)
        self.next(steps)
        send = self.next(steps, answer(421, "misdirected", instance="http://three/"))
        self.assertEqual(send.url, "http://three/v1/acquire")
        self.assertEqual(self.end(steps, answer(200, **GRANT)).base, "http://three")

    def test_does_not_follow_in_circles(self) -> None:
        steps = self.session.acquire(self.claim(), 0)
        self.next(steps)
        with self.assertRaises(FencelockError) as error:
            for _ in range(20):
                self.next(steps, answer(421, "misdirected", instance="http://three/"))
        self.assertEqual(error.exception.slug, "misdirected")

    def test_does_not_carry_the_token_from_https_to_http(self) -> None:
        session = Session(["https://one"], "secret", 10)
        for instance in ("http://three", "ftp://three", "three", "https://", ""):
            steps = session.acquire(self.claim(), 0)
            self.assertEqual(self.next(steps).headers["Authorization"], "Bearer secret")
            with self.assertRaises(FencelockError):
                steps.send(answer(421, "misdirected", instance=instance))

    def test_what_no_fencelock_answered_is_unavailable(self) -> None:
        steps = self.session.acquire(self.claim(), 0)
        self.next(steps)
        with self.assertRaises(Unavailable):
            while True:
                self.next(steps, Answer(502, None, b"<html>Bad Gateway</html>"))
        steps = self.session.acquire(self.claim(), 0)
        self.next(steps)
        with self.assertRaises(Unavailable):
            while True:
                self.next(steps, Answer(200, None, b"<html>Please log in</html>"))


class Tokens(unittest.TestCase):
    """A token is a secret, and one part of a header."""

    BAD = ("secret\r\nX-Admin: 1", "secret\n", " secret", "two secrets", "sécret", "secret\x00", "\ufeffsecret")

    def test_that_are_no_header_are_refused_and_not_shown(self) -> None:
        for kind in (Client, AsyncClient):
            for token in self.BAD:
                with self.assertRaises(ValueError) as refused:
                    kind("http://127.0.0.1:1", token=token)
                self.assertNotIn("secret", "".join(traceback.format_exception(None, refused.exception, None)))

    def test_of_the_environment_may_end_with_a_line_end(self) -> None:
        with mock.patch.dict(os.environ, {"FENCELOCK_SERVE_TOKEN": "secret\r\n"}):
            headers = Session(["http://one"], None, 10)._headers
        self.assertEqual(headers["Authorization"], "Bearer secret")

    def test_and_passwords_of_urls_are_in_no_error(self) -> None:
        with self.assertRaises(ValueError) as refused:
            Client("http://user:secret@127.0.0.1:1")
        self.assertNotIn("secret", str(refused.exception))
        client = Client("http://127.0.0.1:1", token="secret", timeout=0.1)
        with self.assertRaises(Unavailable) as unavailable:
            client.line("k")
        error = unavailable.exception
        self.assertNotIn("secret", "".join(traceback.format_exception(type(error), error, error.__traceback__)))


class Releasing(Clock):
    def release(self, *outcomes: Outcome) -> None:
        lease = self.lease()
        self.assertTrue(lease._begin_release(""))
        steps = lease._release()
        self.next(steps)
        for outcome in outcomes[:-1]:
            self.next(steps, outcome)
        self.end(steps, outcomes[-1])
        self.assertFalse(lease._begin_release(""))

    def test_a_handle_that_is_gone_was_lost(self) -> None:
        with self.assertRaises(LeaseLost):
            self.release(answer(410, "lost", reason="broken"))

    def test_a_handle_that_is_gone_after_no_answer_was_released(self) -> None:
        self.release(OSError("cut"), answer(410, "lost", reason="released"))

    def test_after_the_end_says_that_it_was_lost(self) -> None:
        lease = self.lease()
        self.time += 30
        with self.assertRaises(LeaseLost):
            lease._begin_release("")

    def test_without_an_answer_is_sent_again(self) -> None:
        lease = self.lease()
        lease._begin_release("ever")
        steps = lease._release()
        send = self.next(steps)
        with self.assertRaises(Unavailable):
            while True:
                self.time += send.timeout
                send = self.next(steps, OSError("cut"))
        self.assertTrue(lease._begin_release(""), "the second call has nothing to send")
        again = lease._release()
        self.assertEqual(json.loads(self.next(again).body or b""), {"handle": "h", "done": "ever"})
        self.end(again, answer(200, released=True))
        self.assertFalse(lease._begin_release(""))

    def test_that_was_refused_is_refused_again(self) -> None:
        lease = self.lease()
        lease._begin_release("")
        steps = lease._release()
        self.next(steps)
        with self.assertRaises(LeaseLost):
            self.next(steps, answer(410, "lost", reason="broken"))
        with self.assertRaises(LeaseLost):
            lease._begin_release("")

    def test_is_owed_until_it_is_answered_or_the_lease_has_ended(self) -> None:
        for answered in (True, False):
            lease = self.lease()
            lease._begin_release("")
            start, sent = self.time, 0
            steps = lease._owed()
            with self.assertRaises(StopIteration):
                self.next(steps)
                while True:
                    sent += 1
                    if answered and sent == 20:
                        self.next(steps, answer(200, released=True))
                    self.time += 0.01
                    self.next(steps, ConnectionRefusedError())
            self.assertEqual(lease._settled, answered)
            if not answered:
                self.assertTrue(28 <= self.time - start <= 31, self.time - start)

    def test_of_a_slot_after_one_without_it_is_refused(self) -> None:
        lease = self.lease()
        lease._begin_release("")
        with self.assertRaises(LeaseLost):
            lease._begin_release("ever")


if __name__ == "__main__":
    unittest.main()
