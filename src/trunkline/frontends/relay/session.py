"""A legacy client's session with the gateway: opened by the client, opened again by us when the gateway forgot it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, Literal, Protocol

from trunkline.core.errors import Problem
from trunkline.frontends.relay.link import GatewayLink, Post
from trunkline.frontends.relay.messages import answer_in, kind_of, odd_answer, token_refused, unreachable, version_in
from trunkline.protocol.jsonrpc import Message, encode_notification, single_line
from trunkline.protocol.mcp.methods import LIST_CHANGED
from trunkline.runtime.deadlines import Within

HANDSHAKE_S: Final = 10.0
"""A gateway answers `initialize` at once; this is for one that hangs."""
_FAREWELL_S: Final = 1.0
_AGAIN_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_MAX_UNKNOWN: Final = 2
_TRY_AGAIN: Final = frozenset({0, 200, 401, 404, 409, 429, 500, 502, 503, 504})
"""How a stream may have been answered that is worth asking for again; 0 is not at all."""

Tell = Callable[[bytes], None]
State = Literal["none", "opening", "open", "lost"]


class Outgoing(Protocol):
    """A message that waits for its session."""

    def send(self) -> None: ...
    def fail(self, problem: Problem) -> None: ...


class Awaited:
    """A post whose end somebody awaits."""

    def __init__(self, on_event: Tell | None = None) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status = 0
        self.body = b""
        self.session_id = b""
        self.reason = ""
        self._on_event = on_event

    def event(self, data: bytes) -> None:
        if self._on_event is not None:
            self._on_event(data)
        else:
            self.body = data  # the answer is the last of a stream

    def over(self, post: Post, body: bytes) -> None:
        self.status, self.session_id = post.status, post.session_id
        self.body = self.body if post.streamed else body
        self.end()

    def lost(self, post: Post, reason: str) -> None:
        self.status, self.reason = post.status, reason
        self.end()

    def tick(self) -> None: ...

    def end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class Session:
    def __init__(self, link: GatewayLink, tell: Tell) -> None:
        self._link = link
        self._tell = tell
        self._state: State = "none"
        self._hello: tuple[bytes, Message] | None = None
        self._ready = b""
        self._held: list[Outgoing] = []
        self._reopening: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._news = News(link, tell, self._has_news, self.gone)
        self._loop = asyncio.get_running_loop()

    @property
    def exists(self) -> bool:
        """Whether the client ever opened one."""
        return self._state != "none"

    def admit(self, message: Outgoing) -> bool:
        """Whether a message may go out now. If not, it is kept, and sent or failed once that is settled."""
        if self._state in ("none", "open"):
            return True
        self._held.append(message)
        if self._state == "lost":
            self._reopen()
        return False

    def withdraw(self, message: Outgoing) -> bool:
        """Take back a message that is kept."""
        if message not in self._held:
            return False
        self._held.remove(message)
        return True

    # -- the client opens it --------------------------------------------------------------------------------------

    def opening(self, line: bytes, message: Message) -> None:
        """The client's `initialize` is about to go out. A session from before is over for it."""
        if self._reopening is not None:
            self._reopening.cancel()
            self._let_end(self._reopening)
            self._reopening = None
        if self._link.session_id:
            self._farewell()
        self._hello, self._ready = (line, message), b""
        self._forget()
        self._state = "opening"

    def answered(self, session_id: bytes, version: str | None) -> None:
        """How `initialize` was answered; no version means that it was refused."""
        if version is None:
            self._state = "none"
        else:
            self._state = "open"
            self._link.session_id, self._link.version = session_id, version
            if self._ready:
                self._news.start()
        self._release(None)

    def initialized(self, line: bytes) -> None:
        """The client is ready for news."""
        self._ready = line
        if self._state == "open":
            self._news.start()

    # -- the gateway forgot it ------------------------------------------------------------------------------------

    def gone(self, session_id: bytes) -> None:
        """The gateway does not know this session, so nothing that was sent in it ran."""
        if self._state == "open" and session_id == self._link.session_id:
            self._state = "lost"

    async def _has_news(self) -> bool:
        """Whether there is a session to listen to, after trying to have one."""
        if self._state == "lost":
            await asyncio.wait([self._reopen()])
        return self._state == "open"

    def _reopen(self) -> asyncio.Task[None]:
        if self._reopening is None:
            self._reopening = self._loop.create_task(self._open_again())
        return self._reopening

    async def _open_again(self) -> None:
        problem = await self._handshake()
        self._reopening = None
        if problem is None:
            self._state = "open"
            if self._ready:
                self._tell(encode_notification(LIST_CHANGED))
                self._news.start()
        else:
            self._link.failed(problem)
        self._release(problem)

    async def _handshake(self) -> Problem | None:
        """What the client said when it opened its session, said again."""
        assert self._hello is not None
        line, message = self._hello
        self._forget()
        hello = await self._ask(line)
        version = version_in(answer_in(hello.body, message) or b"")
        if hello.reason:
            return unreachable(self._link.where, hello.reason, sent=False)
        if hello.status == 401:
            return token_refused(self._link.where, given=self._link.has_token)
        if version is None:
            return odd_answer(self._link.where, hello.status, hello.body, self._link.redact)
        self._link.reached()
        self._link.session_id, self._link.version = hello.session_id, version
        if self._ready:
            await self._ask(self._ready)
        return None

    async def _ask(self, line: bytes) -> Awaited:
        awaited = Awaited()
        post = self._link.post(line, awaited, silent_s=HANDSHAKE_S)
        try:
            async with Within(2 * HANDSHAKE_S):
                await awaited.done
        except TimeoutError:
            awaited.reason = f"no answer within {2 * HANDSHAKE_S:g} seconds"
        finally:
            post.drop()
        return awaited

    def _forget(self) -> None:
        self._link.session_id, self._link.version = b"", ""

    def _release(self, problem: Problem | None) -> None:
        held, self._held = self._held, []
        for message in held:
            if problem is None:
                message.send()
            else:
                message.fail(problem)

    # -- the end --------------------------------------------------------------------------------------------------

    def _farewell(self) -> None:
        awaited = Awaited()
        post = self._link.end_session(awaited, _FAREWELL_S)
        self._let_end(self._loop.create_task(_heard(awaited, post)))

    def _let_end(self, task: asyncio.Task[None]) -> None:
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        await self._news.close()
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.wait([self._reopening])
        if self._link.session_id:
            self._farewell()
        if self._ending:
            await asyncio.wait(self._ending)


async def _heard(awaited: Awaited, post: Post) -> None:
    await asyncio.wait([awaited.done], timeout=_FAREWELL_S)
    post.drop()


class News:
    """The session's stream, opened again whenever it ends. It is also how a gateway's end is noticed while all is
    quiet, and its return."""

    def __init__(
        self,
        link: GatewayLink,
        tell: Tell,
        has_session: Callable[[], Awaitable[bool]],
        gone: Callable[[bytes], None],
    ) -> None:
        self._link = link
        self._tell = tell
        self._has_session = has_session
        self._gone = gone
        self._changed = asyncio.Event()
        self._heard = b"", b""
        """Whose stream was listened to last, and the last event that was heard on it."""
        self._unknown = 0
        """How many sessions in a row were not known when their stream was asked for."""
        self._stream: Awaited | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Listen to the session that there is now."""
        self._changed.set()
        if self._stream is not None:
            self._stream.end()
        if self._is_offered and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._keep_listening())

    @property
    def _is_offered(self) -> bool:
        """A gateway that opens sessions and then does not know them has no such stream: many answer so to any GET."""
        return self._unknown < _MAX_UNKNOWN

    async def _keep_listening(self) -> None:
        pause_s = _AGAIN_S
        while self._is_offered:
            self._changed.clear()
            since = self._link.now
            status = await self._listen() if await self._has_session() else 0
            if status not in _TRY_AGAIN:
                return
            soon = status == 404 or self._link.now - since > _LONGEST_PAUSE_S
            pause_s = _AGAIN_S if soon else min(2 * pause_s, _LONGEST_PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()

    async def _listen(self) -> int:
        self._changed.clear()  # what there is now is what will be listened to
        stream = self._stream = Awaited(self._message)
        session_id = self._link.session_id
        if session_id != self._heard[0]:
            self._heard = session_id, b""
        post = self._link.open_stream(stream, self._heard[1])
        try:
            await stream.done
        finally:
            self._stream = None
            self._heard = session_id, post.last_event_id or self._heard[1]
            post.drop()
        if stream.reason:
            self._link.failed(unreachable(self._link.where, stream.reason, sent=False))
        self._unknown = self._unknown + 1 if stream.status == 404 else 0 if stream.status == 200 else self._unknown
        if stream.status == 404 and self._is_offered:
            self._gone(session_id)
        return stream.status

    def _message(self, data: bytes) -> None:
        if kind_of(data, None) == "notice":
            self._tell(single_line(data))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
