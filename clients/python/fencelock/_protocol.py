"""The protocol of `fencelock serve`, apart from how bytes travel.

A conversation is a generator. It yields a Send, or seconds to pause, and is sent the
outcome. So both clients share every rule about repeating and failing over.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import time
import uuid
from typing import Any, Dict, Generator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type, TypeVar, Union
from urllib.parse import urlencode, urlsplit

T = TypeVar("T")
JSON = Dict[str, Any]
_POLL = 60.0  # seconds of waiting asked of a server at once; it allows 300
_BOOT: Optional[int] = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Seconds by a clock that nobody sets, and that counts on while a Linux machine is suspended."""
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)


_forks = 0  # between the first process and this one


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def this_process() -> Tuple[int, int]:
    """Names this process. Its number alone does not: containers give it again, and so does a long-lived host."""
    return os.getpid(), _forks


class FencelockError(Exception):
    """A request was refused, or its outcome is unknown. `problem` is the server's answer, `slug` its type."""

    def __init__(self, message: str, slug: str = "", problem: Optional[JSON] = None) -> None:
        super().__init__(message)
        self.slug, self.problem = slug, problem or {}
        self.unsure = False  # an earlier attempt of the same request had no answer


class NotAcquired(FencelockError):
    """Others hold the key; `holders` says who."""

    @property
    def holders(self) -> List[JSON]:
        return list(self.problem.get("holders") or [])


class LeaseLost(FencelockError):
    """The lease ended before its release, for this `reason`; somebody else may hold the key."""

    @property
    def reason(self) -> str:
        return str(self.problem.get("reason") or self)


class Unavailable(FencelockError):
    """No server answered, or its store did not, or the store refused. With the slug "refused-for-now" or
    "refused" the request did nothing, else the outcome is unknown: a grant ends with its ttl."""


class Forbidden(FencelockError):
    """The token is missing or unknown, or does not allow this verb or key."""


class InvalidRequest(FencelockError):
    """The request cannot succeed as it is."""


class WrongKind(InvalidRequest):
    """The key is in use as another kind, or with another size."""


class SlotPassed(FencelockError):
    """A later slot is done, so `slot` cannot run any more. Whether it was done before is not known."""

    @property
    def slot(self) -> str:
        return str(self.problem.get("slot", ""))

    @property
    def done_slot(self) -> str:
        """The last slot that is done."""
        return str(self.problem.get("done_slot", ""))


class NoClaim(FencelockError):
    """No claim of that key has the token."""


class TooMany(FencelockError):
    """The server takes no more claims of this principal for now."""


_CLASSES: Dict[str, Type[FencelockError]] = {
    "not-acquired": NotAcquired, "lost": LeaseLost, "come-again": Unavailable, "forbidden": Forbidden,
    "unauthenticated": Forbidden, "wrong-kind": WrongKind, "no-claim": NoClaim, "too-many": TooMany,
    "slot-passed": SlotPassed}


class Send(NamedTuple):
    """One HTTP request, and the seconds in which its answer counts."""

    url: str
    method: str
    headers: Mapping[str, str]
    body: Optional[bytes]
    timeout: float


class Answer(NamedTuple):
    status: int
    retry_after: Optional[str]
    body: bytes


class Reply(NamedTuple):
    """A good answer: when its request was sent, and the server that has to be asked about it, if any."""

    data: JSON
    sent: float
    base: str


Outcome = Union[Answer, Exception, None]
Steps = Generator[Union[Send, float], Outcome, T]


def duration(seconds: float) -> str:
    return f"{max(0, math.ceil(seconds * 1000))}ms"


def _refusal(answer: Answer) -> FencelockError:
    try:
        problem: Any = json.loads(answer.body)
        slug = str(problem["type"]).rpartition("/")[2]
    except (ValueError, TypeError, KeyError):  # of a balancer, not of fencelock
        problem, slug = {"detail": f"the server answered with status {answer.status}"}, "unavailable"
    text = str(problem.get("detail") or problem.get("title"))
    if holders := problem.get("holders"):
        text = f"the lock is held by {holders[0]['owner']!r} with the note {holders[0]['note']!r}"
    if "key" in problem:
        text = f"{problem['key']!r}: {text}"
    other = InvalidRequest if answer.status < 500 else Unavailable
    return _CLASSES.get(slug, other)(text, slug, problem)


def clean(value: str) -> str:
    """A setting without blanks, line ends, a byte order mark and one pair of quotes around it, as the command has it."""
    value = value.lstrip("\ufeff").strip()
    if len(value) >= 2 and value[0] in "\"'" and value[-1] == value[0]:
        value = value[1:-1]
    return value


class Session:
    """Where the servers are, and how a request reaches one of them."""

    def __init__(self, servers: Sequence[str], token: Optional[str], timeout: float) -> None:
        self._bases = [base.rstrip("/") for base in servers]
        self._first, self._timeout = 0, timeout
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if token := token or clean(os.environ.get("FENCELOCK_SERVE_TOKEN", "")):
            if not re.fullmatch("[!-~]+", token):  # no text of an error shows it
                raise ValueError("the token is not of visible ASCII characters, without blanks and line ends")
            self._headers["Authorization"] = f"Bearer {token}"
        for base in self._bases or [""]:
            url = urlsplit(base)
            if "@" in url.netloc:
                raise ValueError(f"the base URL of {url.hostname!r} has a user or a password; pass token instead")
            if url.scheme not in ("http", "https") or not url.hostname or not base.isprintable() or " " in base:
                raise ValueError(f"{base!r} is no base URL: it begins with http:// or https:// and a host")

    def call(self, path: str, body: Optional[JSON] = None, *, wait: Optional[float] = None,
             limit: float = math.inf, base: str = "") -> Steps[Reply]:
        """Send until a server answers for good. Each request names its claim, so repeating it is safe."""
        begin = now()
        end = begin + (wait or 0)
        give_up = min(limit, end + self._timeout)
        hops = failures = 0
        while True:
            at, sent = base or self._bases[self._first], now()
            poll = min(max(0.0, end - sent), _POLL)
            if body is not None and wait is not None:
                stay = {"stay": True} if end - sent > poll else {}
                body = {**{k: v for k, v in body.items() if k != "stay"}, **stay, "wait": duration(poll)}
            if body is not None and "slot" in body and sent > begin:
                body = {**body, "since": duration(sent - begin)}  # the slot is that of the first attempt
            # An attempt gets half of the time that is left, the other half is for the next one.
            timeout = poll + max(0.02, min(self._timeout, give_up - sent - poll) / 2)
            answer = yield Send(at + path, "GET" if body is None else "POST", self._headers,
                                None if body is None else json.dumps(body).encode(), timeout)
            pause, failed = 0.0, True
            if isinstance(answer, Answer) and answer.status == 200:
                try:
                    return Reply(json.loads(answer.body), sent, base)
                except ValueError as garbage:
                    answer = garbage
            if isinstance(answer, Answer):
                error = _refusal(answer)
                instance = str(error.problem.get("instance") or "")
                if error.slug == "misdirected" and hops < 5 and self._trusts(at, instance):
                    base, hops = instance.rstrip("/"), hops + 1
                    continue
                if body is not None and "slot" in body and "slot" in error.problem:
                    body = {**body, "slot": error.problem["slot"]}  # waiting moves no slot
                # A lease that is held is renewed and released in spite of a refusal: rights may come back.
                if answer.status < 500 or wait is not None and error.slug == "refused":
                    error.unsure = failures > 0
                    raise error
                failed, after = error.slug != "come-again", answer.retry_after or ""
                pause = max(0.05, float(after) if after.isdigit() else 0)
            else:
                error = Unavailable(f"{at} does not answer: {answer!r}", "unavailable")
            if failed:  # the next one; a pause when none is left
                failures, base = failures + 1, ""
                self._first = (self._first + 1) % len(self._bases)
                rounds, rest = divmod(failures, len(self._bases))
                pause = pause if rest else max(pause, min(1.0, 0.025 * 2**min(rounds, 9)) * random.uniform(0.5, 1))
            if now() + pause + 0.02 >= give_up:
                raise error
            yield pause

    @staticmethod
    def _trusts(base: str, instance: str) -> bool:
        """The bearer token must not go where it can be read on the way."""
        return urlsplit(instance).scheme in ("https", urlsplit(base).scheme) and bool(urlsplit(instance).hostname)

    @staticmethod
    def claim(key: str, *, ttl: float, request_id: str = "", **optional: Union[str, int, None]) -> JSON:
        body: JSON = {"key": key, "ttl": duration(ttl), "request_id": request_id or uuid.uuid4().hex}
        return {**body, **{name: value for name, value in optional.items() if value not in ("", None)}}

    def acquire(self, claim: JSON, wait: float) -> Steps[Reply]:
        try:
            return (yield from self.call("/v1/once" if "slot" in claim else "/v1/acquire", claim, wait=wait))
        except LeaseLost as spent:  # a refusal, or the lease, whose answer never came
            raise NotAcquired(str(spent), "not-acquired", spent.problem) if spent.unsure else spent

    def leave(self, claim: JSON) -> Steps[None]:
        """Leave the line for good. A server that does not hear of it ends the claim seconds later."""
        try:
            yield from self.call("/v1/leave", {name: claim[name] for name in ("key", "request_id")}, limit=now() + 5)
        except FencelockError:
            pass

    def line(self, key: str) -> Steps[JSON]:
        return (yield from self.call("/v1/line?" + urlencode({"key": key}))).data

    def lines(self, prefix: str, limit: int) -> Steps[JSON]:
        return (yield from self.call("/v1/lines?" + urlencode({"prefix": prefix, "limit": limit}))).data

    def break_claim(self, key: str, token: int, reason: str, notice: float, delay: Optional[float]) -> Steps[None]:
        body: JSON = {"key": key, "token": str(token), "reason": reason}
        if notice > 0:
            body["notice"] = duration(notice)
        if delay is not None:
            body["delay"] = duration(delay)
        yield from self.call("/v1/break", body)


_BUSY = "the program was too busy to send a renewal"


class LeaseCore:
    """What a lease knows. Its deadline counts from before the request that the server answered was sent.

    It belongs to the process that acquired it. A fork has a copy that nobody renews: there the
    lease counts as over, and nothing that the copy does reaches the server.
    """

    def __init__(self, session: Session, reply: Reply) -> None:
        data = reply.data
        self.key, self.handle, self.token = str(data["key"]), str(data["handle"]), int(data["token"])
        self.ttl, self.request_id = float(data["ttl_ms"]) / 1000, str(data["request_id"])
        self._session, self._process = session, this_process()
        self._base: str = reply.base
        self._sent = reply.sent + min(data["waited_ms"] / 1000, now() - reply.sent)
        self._deadline: float = self._sent + data["left_ms"] / 1000
        self._trouble = _BUSY
        self._error: Optional[LeaseLost] = None
        self._released, self._done = False, ""  # a release has begun, with this slot to note as done
        self._tried = self._settled = False  # it was sent; it was answered
        self._refused: Optional[LeaseLost] = None  # by that answer
        self._revocation: Optional[str] = None

    @property
    def _mine(self) -> bool:
        return self._process == this_process()

    @property
    def left(self) -> float:
        """Seconds until the lease ends unless it is renewed; 0 after its end, and in a forked process."""
        over = self._error or self._released or not self._mine
        return 0.0 if over else max(0.0, self._deadline - now())

    @property
    def revocation(self) -> Optional[str]:
        """The reason of the break that has given notice, or None. Then the lease ends after `left`."""
        return self._revocation

    def _revoke(self, reason: str) -> None:
        """Note the notice of a break."""
        self._revocation = reason

    def _ran_out(self) -> str:
        """Why the lease ends at its deadline."""
        if self._revocation is not None:
            return f"it was broken, and its notice is over: {self._revocation}"
        return f"it was not renewed in time: {self._trouble}"

    def check(self) -> None:
        """Raise LeaseLost unless this process holds the lease, by its own clock. It asks no server."""
        if not self._mine:
            reason = f"process {self._process[0]} acquired it, and a fork of that process does not hold it"
            raise LeaseLost(f"{self.key!r} is not held here: {reason}", "lost", {"reason": reason})
        if self.left == 0:
            self._lose(self._ran_out())
        if self._error is not None:
            raise LeaseLost(str(self._error), "lost", self._error.problem)
        if self._released:
            raise LeaseLost(f"{self.key!r} was released", "lost", {"reason": "released"})

    def _lose(self, reason: str) -> bool:
        """Note the loss, once. A lease that was released is not lost."""
        if self._error is not None or self._released:
            return False
        self._error = LeaseLost(f"{self.key!r} was lost: {reason}", "lost", {"reason": reason})
        return True

    def _renewals(self) -> Steps[None]:
        """Renew at a third of the lease, until the loss. A release stops who plays these steps."""
        while self._error is None and not self._released:
            length = self._deadline - self._sent if self._revocation is None else self.ttl
            yield max(0.01, self._sent + min(self.ttl, length) / 3 - now())
            if not self._mine:  # an event loop that goes on in a fork
                self._lose("it belongs to the process that acquired it, and this one is a fork")
                return
            self._trouble = "no renewal was answered" if self._trouble == _BUSY else self._trouble
            try:
                reply = yield from self._session.call("/v1/renew", {"handle": self.handle}, limit=self._deadline,
                                                      base=self._base)
                self._sent, self._base = reply.sent, reply.base
                self._deadline = reply.sent + reply.data["left_ms"] / 1000
                self._trouble = _BUSY
                if reply.data.get("revoked"):
                    self._revoke(str(reply.data.get("reason", "")))
            except LeaseLost as lost:
                self._lose(lost.reason)
            except FencelockError as error:  # it may pass before the lease ends, as a wrong file of tokens does
                self._trouble = str(error)
                yield self.ttl / 10

    def _begin_release(self, done: str) -> bool:
        """Whether a release has to be sent, now or again. Raises LeaseLost if nothing is left to release."""
        if not self._mine:
            return False
        if not self._released:
            self.check()
            self._released, self._done = True, done
        elif self._refused is not None:
            raise LeaseLost(str(self._refused), "lost", self._refused.problem)
        elif done and done != self._done:
            self.check()  # raises: it was released, and the slot is not noted as done
        return not self._settled

    def _release(self, limit: float = math.inf) -> Steps[None]:
        """Send the release. Without an answer its outcome is unknown, and it may be sent again."""
        tried, self._tried = self._tried, True
        body = {"handle": self.handle, **({"done": self._done} if self._done else {})}
        try:
            yield from self._session.call("/v1/release", body, limit=limit, base=self._base)
        except LeaseLost as lost:
            self._settled = True
            # An attempt without an answer may have released it. It has noted no slot: a server that
            # has noted a slot for this lease says so to every repeated request.
            if self._done or not (tried or lost.unsure):
                self._refused = lost
                raise
        self._settled = True

    def _owed(self) -> Steps[None]:
        """Send the release again until it is answered, or the lease has ended by itself."""
        while True:
            yield max(0.05, min(1.0, self.ttl / 10))
            if self._settled or not self._mine or now() >= self._deadline:
                return
            try:
                yield from self._release(limit=self._deadline)
            except LeaseLost:
                return
            except FencelockError:  # also a refusal may pass, as a wrong file of tokens does
                pass
