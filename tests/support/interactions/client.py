"""One small interface over every kind of client, so that a feature's check is written once.

Whatever goes in and comes out is plain JSON as on the wire; an error is `Refused`, whoever's library raised it.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]
Era = Literal["legacy", "modern"]
MODERN = "2026-07-28"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
ROOTS: list[Json] = [{"uri": "file:///home/ada", "name": "home"}, {"uri": "file:///srv/data", "name": "data"}]
EVERYTHING = frozenset({"sampling", "elicitation", "roots"})
NOTHING: frozenset[str] = frozenset()
_FORM: Json = {"name": "Ada", "age": 36, "colour": "green", "reader": "Ada", "topic": "engines"}


class Refused(Exception):
    """A JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.data = data


@dataclass(frozen=True)
class Question:
    """What a server asked, and how."""

    method: str
    params: Json

    @property
    def server(self) -> str | None:
        """Who asks, as the gateway says."""
        return self.params.get("_meta", {}).get("trunkline/server")

    @property
    def text(self) -> str:
        """What the person or the model is shown."""
        if self.method == "sampling/createMessage":
            return self.params["messages"][0]["content"]["text"]
        return self.params.get("message", "")


def obliging(question: Question) -> Json:
    """Answers everything: forms from one list of facts, models by repeating."""
    if question.method == "sampling/createMessage":
        content = {"type": "text", "text": f"thought about {question.text}"}
        return {"role": "assistant", "model": "parrot", "stopReason": "endTurn", "content": content}
    if question.method == "roots/list":
        return {"roots": ROOTS}
    if question.params.get("mode") == "url":
        return {"action": "accept"}
    wanted = question.params["requestedSchema"]["properties"]
    return {"action": "accept", "content": {name: _FORM[name] for name in wanted}}


def declining(question: Question) -> Json:
    """Says no where one may."""
    return {"action": "decline"} if question.method == "elicitation/create" else obliging(question)


@dataclass
class Person:
    """Whoever sits at the client: remembers what it was asked."""

    answer: Callable[[Question], Json] = obliging
    asked: list[Question] = field(default_factory=list)

    def __call__(self, method: str, params: Json | None) -> Json:
        question = Question(method, params or {})
        self.asked.append(question)
        return self.answer(question)

    @property
    def methods(self) -> list[str]:
        return sorted(question.method for question in self.asked)


@dataclass
class Heard:
    """What the client was told without asking."""

    logs: list[Json] = field(default_factory=list)
    notices: list[tuple[str, Json]] = field(default_factory=list)

    def of(self, method: str) -> list[Json]:
        return [params for heard, params in self.notices if heard == f"notifications/{method}"]

    def updated(self) -> list[str]:
        return [params["uri"] for params in self.of("resources/updated")]

    def changed(self, kind: str) -> bool:
        return bool(self.of(f"{kind}/list_changed"))


class Client(abc.ABC):
    """One connected client. `prefix` is what the gateway puts before the names of tools and prompts."""

    hides_old_not_found = False
    """Whether its library turns -32002 into -32602 by itself."""
    drops_argument_titles = False
    """Whether its library does not know the titles of prompts' arguments."""
    loses_last_progress = False
    """Whether its library forgets progress that it reads together with the result."""

    def __init__(self, kind: str, era: Era, person: Person, prefix: str) -> None:
        self.kind = kind
        self.era: Era = era
        self.person = person
        self.prefix = prefix
        self.heard = Heard()
        self.level: str | None = None

    def forget(self) -> None:
        """Be as good as new: nothing was asked, nothing heard."""
        self.person = Person()
        self.heard = Heard()
        self.level = None

    # -- what each kind does in its own way ------------------------------------------------------------------------

    @abc.abstractmethod
    async def hello(self) -> Json:
        """`version`, `capabilities`, `instructions` and `server` (its name) as the client knows them."""

    @abc.abstractmethod
    async def list_all(self, method: str) -> list[Json]:
        """A whole list, page by page."""

    @abc.abstractmethod
    async def list_page(self, method: str, cursor: str | None = None) -> Json:
        """One page with all that is beside the items."""

    @abc.abstractmethod
    async def call_exactly(self, name: str, arguments: Json, meta: Json, progress: list[Json] | None) -> Json: ...

    @abc.abstractmethod
    async def get_prompt_exactly(self, name: str, arguments: dict[str, str] | None) -> Json: ...

    @abc.abstractmethod
    async def read(self, uri: str) -> Json: ...

    @abc.abstractmethod
    async def complete(self, ref: Json, argument: dict[str, str], context: dict[str, str] | None = None) -> Json: ...

    @abc.abstractmethod
    async def set_level_in_session(self, level: str) -> None: ...

    @abc.abstractmethod
    async def ping(self) -> None: ...

    @abc.abstractmethod
    async def subscribe(self, uri: str) -> None: ...

    @abc.abstractmethod
    async def unsubscribe(self, uri: str) -> None: ...

    @abc.abstractmethod
    def listening(self, wanted: Json) -> contextlib.AbstractAsyncContextManager[None]:
        """An open `subscriptions/listen`, for clients of 2026-07-28."""

    @abc.abstractmethod
    async def stream_is_open(self) -> None:
        """Return once the client can be told things, where that takes a stream of its own."""

    # -- the same for all ------------------------------------------------------------------------------------------

    @property
    def modern(self) -> bool:
        return self.era == "modern"

    def named(self, name: str) -> str:
        return f"{self.prefix}{name}"

    async def tools(self) -> dict[str, Json]:
        return {tool["name"].removeprefix(self.prefix): tool for tool in await self.list_all("tools/list")}

    async def prompts(self) -> dict[str, Json]:
        return {prompt["name"].removeprefix(self.prefix): prompt for prompt in await self.list_all("prompts/list")}

    async def resources(self) -> dict[str, Json]:
        return {resource["uri"]: resource for resource in await self.list_all("resources/list")}

    async def templates(self) -> dict[str, Json]:
        found = await self.list_all("resources/templates/list")
        return {template["uriTemplate"]: template for template in found}

    async def call(
        self, tool: str, /, *, meta: Json | None = None, progress: list[Json] | None = None, **arguments: Any
    ) -> Json:
        """Call a tool of the feature server."""
        meta = dict(meta or {})
        if self.modern and self.level is not None:
            meta.setdefault(LOG_LEVEL, self.level)
        return await self.call_exactly(self.named(tool), arguments, meta, progress)

    def start(self, tool: str, /, **arguments: Any) -> asyncio.Task[Json]:
        """A call to be taken back by cancelling it."""
        return asyncio.get_running_loop().create_task(self.call(tool, **arguments))

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> Json:
        return await self.get_prompt_exactly(self.named(name), arguments)

    async def set_level(self, level: str) -> None:
        """How much of the servers' logs to be told, in the way of the era."""
        self.level = level
        if not self.modern:
            await self.set_level_in_session(level)

    @contextlib.asynccontextmanager
    async def watching(self, uris: Sequence[str] = (), *, lists: Sequence[str] = ()) -> AsyncIterator[None]:
        """Be told of changes, in the way of the era, until the end of `async with`."""
        if self.modern:
            wanted: Json = {f"{kind}ListChanged": True for kind in lists}
            if uris:
                wanted["resourceSubscriptions"] = list(uris)
            async with self.listening(wanted):
                yield
            return
        await self.stream_is_open()
        for uri in uris:
            await self.subscribe(uri)
        yield
        for uri in uris:
            await self.unsubscribe(uri)


def text_of(result: Json) -> str:
    return result["content"][0]["text"]
