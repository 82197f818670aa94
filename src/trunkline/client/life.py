"""One run of an app: dial, register, stay, dial again, until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable

from .address import Address
from .backoff import Backoff
from .calls import Slots
from .errors import Refused
from .link import Link
from .registration import Registration
from .session import Identity, Session
from .toolset import Toolset

log = logging.getLogger(__package__)


class Life:
    """`run` is called once; `stop` may come from any thread, before it as well."""

    def __init__(
        self,
        address: Address,
        identity: Identity,
        toolset: Toolset,
        registration: Registration,
        new_slots: Callable[[], Slots],
    ) -> None:
        self._address = address
        self._identity = identity
        self._toolset = toolset
        self._registration = registration
        registration.begin()
        self._new_slots = new_slots
        self._backoff = Backoff()
        self._complained = False
        self._lock = threading.Lock()
        self._stopping = False
        self._cancel: Callable[[], object] = lambda: None
        self.is_over = False

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        staying = loop.create_task(self._stay_connected())
        with self._lock:
            self._cancel = lambda: loop.call_soon_threadsafe(staying.cancel)
            if self._stopping:
                staying.cancel()
        try:
            await asyncio.wait({staying})
            if not staying.cancelled():
                staying.result()
        finally:
            try:
                staying.cancel()
                await asyncio.wait({staying})
            finally:
                self._end()

    def stop(self) -> None:
        with self._lock:
            if not self._stopping and not self.is_over:
                self._stopping = True
                self._cancel()

    def _end(self) -> None:
        with self._lock:
            self.is_over = True
        self._registration.ended(ConnectionAbortedError(f"`{self._identity.app_name}` has stopped"))

    async def _stay_connected(self) -> None:
        slots = self._new_slots()
        while True:
            delay_s = await self._one_try(slots)
            if self._registration.is_there:
                log.warning("`%s` has lost its gateway; dialling again", self._identity.app_name)
                self._registration.lost()
                self._complained = False
            await asyncio.sleep(delay_s)

    async def _one_try(self, slots: Slots) -> float:
        """How long to wait until the next one."""
        try:
            await self._one_connection(slots)
            self._complain(ConnectionResetError("it closed the connection"))
        except Refused as refused:
            if not self._registration.ever:
                self._registration.ended(refused)
                raise
            delay_s = self._backoff.after_refusal_s()
            log.error("%s; trying again in %.0f s", refused, delay_s)
            return delay_s
        except OSError as error:
            self._complain(error)
        return self._backoff.next_delay_s()

    def _complain(self, error: OSError) -> None:
        """Once is enough, until the gateway was there again."""
        if not self._registration.is_there:
            level = logging.DEBUG if self._complained else logging.WARNING
            log.log(
                level, "No gateway for apps at %s: %s; trying again", self._address, str(error) or type(error).__name__
            )
            self._complained = True

    async def _one_connection(self, slots: Slots) -> None:
        session = Session(await Link.open(self._address), slots, self._identity, self._toolset.current, self._taken)
        loop = asyncio.get_running_loop()

        def changed() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(session.register_if_changed)

        self._toolset.on_change = changed
        try:
            await session.run()
        finally:
            self._toolset.on_change = lambda: None

    def _taken(self, server: str) -> None:
        self._backoff.up()
        if not self._registration.is_there:
            log.info("`%s` is registered at %s as `%s`", self._identity.app_name, self._address, server)
        self._registration.given(server)
