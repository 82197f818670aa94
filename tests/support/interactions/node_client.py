"""The TypeScript SDK's client behind the interface of `client.py`: one Node process for all tests of a module."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.support.interactions.client import EVERYTHING, Client, Era, Json, Person, Refused
from tests.support.peers.programs import NODE, NODE_PACKAGES
from tests.support.waiting import at_most

DRIVER = [NODE, str(Path(__file__).with_name("node_driver.mjs")), str(NODE_PACKAGES / "client")]
LINE_LIMIT_BYTES = 16 * 1024 * 1024
_ITEMS = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"}


class NodeDriver:
    """The process that the clients live in, from `with` to `with`'s end."""

    port: int

    def __enter__(self) -> NodeDriver:
        self._process = subprocess.Popen(DRIVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(at_most(30))
        self._process.stdout.close()


class NodeClient(Client):
    hides_old_not_found = True
    drops_argument_titles = True
    loses_last_progress = True

    def __init__(self, era: Era, person: Person, prefix: str, wire: Wire) -> None:
        super().__init__("typescript", era, person, prefix)
        self._wire = wire
        self._hello: Json = {}

    async def connect(self, **target: Any) -> None:
        self._hello = await self._wire.do("connect", era=self.era, **target)

    async def hello(self) -> Json:
        return self._hello

    async def _request(self, method: str, params: Json | None = None, progress: list[Json] | None = None) -> Json:
        return await self._wire.do("request", method=method, params=params or {}, progress=progress)

    async def list_page(self, method: str, cursor: str | None = None) -> Json:
        return await self._request(method, {} if cursor is None else {"cursor": cursor})

    async def list_all(self, method: str) -> list[Json]:
        items: list[Json] = []
        cursor: str | None = None
        while True:
            page = await self.list_page(method, cursor)
            items += page[_ITEMS.get(method, "resourceTemplates")]
            cursor = page.get("nextCursor")
            if cursor is None:
                return items

    async def call_exactly(self, name: str, arguments: Json, meta: Json, progress: list[Json] | None) -> Json:
        params: Json = {"name": name, "arguments": arguments, **({"_meta": meta} if meta else {})}
        return await self._request("tools/call", params, progress)

    async def get_prompt_exactly(self, name: str, arguments: dict[str, str] | None) -> Json:
        return await self._request("prompts/get", {"name": name, **({"arguments": arguments} if arguments else {})})

    async def read(self, uri: str) -> Json:
        return await self._request("resources/read", {"uri": uri})

    async def complete(self, ref: Json, argument: dict[str, str], context: dict[str, str] | None = None) -> Json:
        known = {"context": {"arguments": context}} if context else {}
        return await self._request("completion/complete", {"ref": ref, "argument": argument, **known})

    async def set_level_in_session(self, level: str) -> None:
        await self._request("logging/setLevel", {"level": level})

    async def ping(self) -> None:
        await self._request("ping")

    async def subscribe(self, uri: str) -> None:
        await self._request("resources/subscribe", {"uri": uri})

    async def unsubscribe(self, uri: str) -> None:
        await self._request("resources/unsubscribe", {"uri": uri})

    @contextlib.asynccontextmanager
    async def listening(self, wanted: Json) -> AsyncIterator[None]:
        opened = await self._wire.do("listen", filter=wanted)
        assert opened["honored"] == wanted
        yield
        await self._wire.do("unlisten", of=opened["id"])

    async def stream_is_open(self) -> None:
        if self._wire.is_http:
            await self._wire.stream_opened.wait()

    def noticed(self, method: str, params: Json) -> None:
        if method == "notifications/message":
            self.heard.logs.append(params)
        self.heard.notices.append((method, params))


class Wire:
    """The conversation with the driver about one client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._progress: dict[int, list[Json]] = {}
        self.stream_opened = asyncio.Event()
        self.is_http = False

    async def do(self, verb: str, *, progress: list[Json] | None = None, **members: Any) -> Json:
        number = next(self._ids)
        if progress is not None:
            self._progress[number] = progress
            members["progress"] = True
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self._say({"id": number, "do": verb, **members})
        try:
            return {**await self._waiting[number], **({"id": number} if verb == "listen" else {})}
        except asyncio.CancelledError:
            self._say({"id": next(self._ids), "do": "cancel", "of": number})
            raise
        finally:
            del self._waiting[number]

    def _say(self, message: Json) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def listen(self, client: NodeClient) -> None:
        while line := await self._reader.readline():
            message = json.loads(line)
            if "event" in message:
                self._take_event(client, message)
            elif (waiting := self._waiting.get(message["id"])) is not None and not waiting.done():
                self._settle(waiting, message)

    def _settle(self, waiting: asyncio.Future[Json], message: Json) -> None:
        if "error" in message:
            error = message["error"]
            waiting.set_exception(Refused(error["code"], error["message"], error["data"]))
        else:
            waiting.set_result(message["result"])

    def _take_event(self, client: NodeClient, message: Json) -> None:
        match message["event"]:
            case "stream":
                self.stream_opened.set()
            case "progress":
                self._progress[message["of"]].append(message["step"])
            case "notice":
                client.noticed(message["method"], message.get("params") or {})
            case "ask":
                answer = client.person(message["method"], message.get("params"))
                self._say({"answer": message["ask"], "result": answer})


@contextlib.asynccontextmanager
async def node_client(
    driver: NodeDriver,
    era: Era,
    target: str | list[str],
    *,
    person: Person,
    declares: frozenset[str] = EVERYTHING,
    prefix: str = "",
    env: dict[str, str] | None = None,
) -> AsyncIterator[NodeClient]:
    """A client of a URL or a command, connected."""
    reader, writer = await asyncio.open_connection("127.0.0.1", driver.port, limit=LINE_LIMIT_BYTES)
    wire = Wire(reader, writer)
    client = NodeClient(era, person, prefix, wire)
    listening = asyncio.get_running_loop().create_task(wire.listen(client))
    try:
        where: Json = {"url": target} if isinstance(target, str) else {"command": target, "env": env}
        wire.is_http = isinstance(target, str)
        await client.connect(declares=sorted(declares), **where)
        yield client
        await wire.do("close")
    finally:
        listening.cancel()
        await asyncio.wait([listening])
        writer.close()
        await writer.wait_closed()
