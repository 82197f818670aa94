"""Whether a peer has gone whose bytes nobody reads at the moment: a transport that is paused does not say."""

from __future__ import annotations

import asyncio
import select
from typing import Final

_GONE: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Also where it only says that it will send no more, as at the end of what is read."""
    descriptor = transport.get_extra_info("socket").fileno()
    if descriptor < 0:
        return False
    poll = select.poll()
    poll.register(descriptor, _GONE)
    return bool(poll.poll(0))
