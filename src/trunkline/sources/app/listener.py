"""The source that is configured: it listens, lets apps in, and brings in a server for each of them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import resource
import time
import unicodedata
from functools import partial
from typing import Final

from trunkline.core.call import Call, Failure
from trunkline.core.errors import APP_REFUSED, SOURCE_LOST, UNKNOWN_TOOL, GatewayError, Problem
from trunkline.core.names import slug
from trunkline.core.source import Health, Sink, ToolsOnlySource
from trunkline.core.tool import Snapshot
from trunkline.core.unfinished_bytes import UnfinishedBytes
from trunkline.protocol.app_messages import BadRegistration, Registration, is_browser, refused, registered
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.listener import Listener
from trunkline.runtime.own_process import connection_limit
from trunkline.runtime.server_lifecycle import RetryBackoff
from trunkline.sources.app import AppSection
from trunkline.sources.app.connected_app import ConnectedApp
from trunkline.sources.app.connection import AppConnection, ThrottledLog

# Those who have dialled and not registered: few at a time, not for long, and with little of our memory.
#
# Whoever can reach the port can be here, so nothing here may cost those inside anything.

_MOST_WAITING: Final = 256
_REGISTER_S: Final = 10.0
_LARGE_BYTES: Final = 1024 * 1024
_MOST_BYTES: Final = 64 * 1024 * 1024


class PendingConnections:
    """`has_token` where nobody may say anything before the token."""

    def __init__(self, complaints: ThrottledLog, *, has_token: bool) -> None:
        self._complaints = complaints
        self._has_token = has_token
        self._waiting: dict[AppConnection, Deadline] = {}
        self._most_waiting = _most_waiting()

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, link: AppConnection) -> None:
        if len(self._waiting) >= self._most_waiting:
            self._drop(next(iter(self._waiting)), "too many connections have not registered")
        late = partial(self._drop, link, f"a connection did not register within {_REGISTER_S:g} seconds")
        self._waiting[link] = Deadline(_REGISTER_S, late)

    def leave(self, link: AppConnection) -> None:
        timer = self._waiting.pop(link, None)
        if timer is not None:
            timer.cancel()

    def check_memory(self, link: AppConnection) -> None:
        """All together may hold so much of lines that have not ended; the largest goes first."""
        if link.buffered_bytes < _LARGE_BYTES:
            return
        if sum(waiting.buffered_bytes for waiting in self._waiting) > _MOST_BYTES:
            largest = max(self._waiting, key=lambda waiting: waiting.buffered_bytes)
            self._drop(largest, "connections that have not registered send too much")

    def heard(self, link: AppConnection, line: bytes) -> None:
        """Something else than `register`. With a token there is no second try; a browser is never let in."""
        if is_browser(line):
            self._drop(link, "something speaks HTTP to the port for apps")
        elif self._has_token:
            self._drop(link, "a connection said something else than `register` first")
        else:
            self._complaints.add("noise_lines", "a connection sent a line that is no message before it registered")

    def _drop(self, link: AppConnection, why: str) -> None:
        self._complaints.add("dials_dropped", f"a connection was closed: {why}")
        link.end(APP_REFUSED, why)


def _most_waiting() -> int:
    """At most a quarter of the files that HTTP connections leave: the rest is for servers and those who are known."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_WAITING
    return max(1, min(_MOST_WAITING, (soft - connection_limit()) // 4))


_ABSENT_S: Final = 600.0
"""How long an app that left is still known by name."""
_MOST_ABSENT: Final = 256
_MOST_APPS: Final = 4096
_TELL_S: Final = 0.2
"""Apps that come and go together are told of together."""
_CLOSE_S: Final = 5.0
_NOT_LISTENING: Final = "the gateway does not listen for apps any more"


class AppListener(ToolsOnlySource):
    def __init__(self, name: str, section: AppSection, limit_bytes: int, unfinished: UnfinishedBytes) -> None:
        self._name = name
        self._section = section
        self._limit_bytes = limit_bytes
        self._unfinished = unfinished
        self._token = section.token.encode()
        self._guests: dict[str, ConnectedApp] = {}
        self._absent: dict[str, Deadline] = {}
        self._links: set[AppConnection] = set()
        self._closing = False
        self._connected = 0
        self._up_since = 0.0
        self._telling: asyncio.TimerHandle | None = None
        self._listener: Listener | None = None
        self._sink: Sink
        self._complaints: ThrottledLog
        self._doorway: PendingConnections
        self._loop: asyncio.AbstractEventLoop

    def submit(self, call: Call) -> None:
        """It has no tools of its own."""
        message = f"Unknown tool: {self._name}.{call.tool}"
        call.finish(Failure(Problem(code=UNKNOWN_TOOL, message=message, source=self._name, tool=call.tool)))

    # -- its life -------------------------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        self._loop = asyncio.get_running_loop()
        self._sink = sink
        self._complaints = ThrottledLog(sink)
        self._doorway = PendingConnections(self._complaints, has_token=bool(self._token))
        try:
            self._listener = await self._listen(RetryBackoff())
            self._up_since = time.time()
            sink.publish(Snapshot())
            self._tell()
            await self._loop.create_future()  # until it is cancelled
        finally:
            await self._close()

    async def _listen(self, backoff: RetryBackoff) -> Listener:
        """Somebody else may hold the address for a while: our own predecessor, maybe."""
        since = time.time()
        while True:
            try:
                key = f"sources.{self._name}.listen"
                return await Listener.open(self._section.listen, self._dialled, key)
            except GatewayError as error:
                problem = error.problem
                health = Health(
                    state="down",
                    reason=problem.message,
                    since=since,
                    last_error=problem.message,
                    restarts=backoff.failures,
                    hint=problem.hint,
                )
                self._sink.health(health)
            await asyncio.sleep(backoff.next_delay_s())

    def _dialled(self) -> asyncio.Protocol:
        return AppConnection(self, self._complaints, self._limit_bytes, self._unfinished)

    async def _close(self) -> None:
        """Whoever is connected is disconnected, and nobody new comes."""
        self._stop_listening()
        for link in list(self._links):
            link.end(SOURCE_LOST, _NOT_LISTENING)
        end = self._loop.time() + _CLOSE_S
        while self._links and self._loop.time() < end:
            await asyncio.sleep(0.01)
        for name in list(self._guests):
            self._dismiss(name)
        if self._telling is not None:
            self._telling.cancel()

    def _stop_listening(self) -> None:
        """At once, so that a successor can have the address while calls still end here."""
        self._closing = True
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        for link in [link for link in self._links if not link.server]:
            link.end(SOURCE_LOST, _NOT_LISTENING)

    # -- how it is ------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        if self._telling is None:
            self._telling = self._loop.call_later(_TELL_S, self._tell)

    def _tell(self) -> None:
        self._telling = None
        if self._listener is not None:
            apps = f"{self._connected} app{'' if self._connected == 1 else 's'} connected"
            reason = f"listening on {self._listener.where}, {apps}"
            self._sink.health(Health(state="ready", reason=reason, since=self._up_since))

    # -- connections, as links tell of them -----------------------------------------------------------------------

    def dialled(self, link: AppConnection) -> None:
        self._links.add(link)
        if self._closing:  # it was on its way in already
            link.end(SOURCE_LOST, _NOT_LISTENING)
        else:
            self._doorway.enter(link)

    def holds(self, link: AppConnection) -> None:
        self._doorway.check_memory(link)

    def heard_early(self, link: AppConnection, line: bytes) -> None:
        self._doorway.heard(link, line)

    def asked_badly(self, link: AppConnection, wrong: BadRegistration) -> None:
        self._refuse(link, "an app", str(wrong), acknowledge=wrong.acknowledge)

    def asked_to_register(self, link: AppConnection, message: Registration) -> None:
        if self._closing:
            return
        name = server_name(message.app_name)
        guest = self._guests.get(name) or self._new_guest(name)
        refusal = self._refusal(link, message, guest)
        sink = None if refusal else self._place(name, guest)
        if sink is None:
            refusal = refusal or f"the name `{name}` is taken by another server"
            self._refuse(link, f"the app `{message.app_name}`", refusal, acknowledge=message.acknowledge)
            return
        self._let_in(link, guest)
        offer = guest.welcome(link, message, sink)
        if message.acknowledge:
            link.tell(registered(message.app_name, name, len(offer.tools), offer.warnings))

    def _place(self, name: str, guest: ConnectedApp) -> Sink | None:
        """Where this app reports to; None where the name is another server's, or reads like it."""
        for absent in [absent for absent in self._absent if absent != name and absent.casefold() == name.casefold()]:
            self._dismiss(absent)
        return self._sink.add_app(name, guest, partial(self._evicted, guest))

    def _evicted(self, guest: ConnectedApp, host_leaves: bool) -> None:
        """The app is hung up on, so that it dials again: at our successor, or here to hear who has its name now."""
        if host_leaves:
            self._stop_listening()
        del self._guests[guest.name]
        timer = self._absent.pop(guest.name, None)
        if timer is not None:
            timer.cancel()
        if guest.link is not None:
            self._connected -= 1
            self._changed()
            guest.evict(_NOT_LISTENING if host_leaves else "")

    def _new_guest(self, name: str) -> ConnectedApp:
        return ConnectedApp(name, ThrottledLog(self._sink), queue=self._section.queue, rate=self._section.rate)

    def _refusal(self, link: AppConnection, message: Registration, guest: ConnectedApp) -> str:
        """Why this app may not register, empty if it may."""
        if self._token and not hmac.compare_digest(self._token, message.token.encode()):
            return "its `token` is missing or wrong"
        if link.server and link.server != guest.name:
            return f"this connection is of `{link.server}`; another app needs another connection"
        if guest.link is not None and guest.link is not link and not self._is_same_app(guest, message):
            return f"an app named `{guest.app_name}` is connected already"
        most = min(_MOST_APPS, connection_limit() // 8)
        if not link.server and self._connected >= most:
            return f"there are {most} apps already"
        return ""

    def _is_same_app(self, guest: ConnectedApp, message: Registration) -> bool:
        """By what only the app itself can know; where it gave nothing, the token that all of them know."""
        known = guest.knows(message.credential)
        return bool(self._token) if known is None else known

    def _refuse(self, link: AppConnection, who: str, why: str, *, acknowledge: bool) -> None:
        self._complaints.add("apps_refused", f"{who} was not let in: {why}")
        link.end(APP_REFUSED, why, refused(APP_REFUSED.id, why) if acknowledge else b"")

    def _let_in(self, link: AppConnection, guest: ConnectedApp) -> None:
        self._doorway.leave(link)
        self._guests[guest.name] = guest
        timer = self._absent.pop(guest.name, None)
        if timer is not None:
            timer.cancel()
        if guest.link is None:
            self._connected += 1
            self._changed()

    def left(self, link: AppConnection) -> None:
        self._doorway.leave(link)
        guest = self._guests.get(link.server)
        if guest is not None and guest.lost(link):
            self._connected -= 1
            self._absent[guest.name] = Deadline(_ABSENT_S, partial(self._dismiss, guest.name))
            if len(self._absent) > _MOST_ABSENT:
                self._dismiss(next(iter(self._absent)))
            self._changed()

    def closed(self, link: AppConnection) -> None:
        self._links.discard(link)

    def _dismiss(self, name: str) -> None:
        timer = self._absent.pop(name, None)
        if timer is not None:
            timer.cancel()
        del self._guests[name]
        self._sink.remove_app(name)


def server_name(app_name: str) -> str:
    """The app's name in characters that a server's name may have; a name without any such is told apart by a hash.

    Letters that only look different, such as those of full width, are the same: nobody registers next to another.
    """
    plain = unicodedata.normalize("NFKC", app_name)
    if any(character.isascii() and character.isalnum() for character in plain):
        return slug(plain)
    return f"app_{hashlib.sha256(app_name.encode()).hexdigest()[:6]}"
