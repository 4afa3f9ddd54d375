"""Locks with leases, waiting in line and fencing tokens, over `fencelock serve`.

    from fencelock import Client

    with Client("http://127.0.0.1:7533").acquire("nightly", wait=60) as lease:
        write_report(lease.token)
"""

from ._async import AsyncClient, AsyncLease
from ._protocol import (FencelockError, Forbidden, InvalidRequest, LeaseLost, NoClaim, NotAcquired, SlotPassed,
                        TooMany, Unavailable, WrongKind)
from ._sync import Client, Lease

__all__ = ["AsyncClient", "AsyncLease", "Client", "FencelockError", "Forbidden", "InvalidRequest", "Lease",
           "LeaseLost", "NoClaim", "NotAcquired", "SlotPassed", "TooMany", "Unavailable", "WrongKind"]
