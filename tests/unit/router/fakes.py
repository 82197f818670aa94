"""A source that does what a test says, and a router around it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trunkline.core.call import Call, Caller, Failure, Json, Result
from trunkline.core.errors import Problem
from trunkline.core.events import Events
from trunkline.core.source import Health, ResourceWatch, Sink, State, TaskWatch
from trunkline.core.tool import ItemDefinition, Snapshot, ToolDefinition
from trunkline.router.definitions import DefinitionStore
from trunkline.router.options import NameRules, RouterOptions, SourceOptions
from trunkline.router.registry import SourceSink
from trunkline.router.router import OnNotification, Router

OK = Result(b'{"content":[]}')


class FakeSource:
    """Keeps every call it gets, unless `on_submit` does something with it."""

    def __init__(self) -> None:
        self.held: list[Call] = []
        self.forgotten: list[str] = []
        self.watches: list[ResourceWatch] = []
        self.task_watches: list[TaskWatch] = []
        self.told: list[tuple[Caller, str, bytes]] = []
        self.refreshed = 0
        self.on_submit: Callable[[Call], None] = self.held.append

    async def run(self, sink: Sink) -> None:
        raise NotImplementedError

    def submit(self, call: Call) -> None:
        self.on_submit(call)

    def forget(self, session: str) -> None:
        self.forgotten.append(session)

    def watch_resource(self, watch: ResourceWatch) -> None:
        """Kept; a test settles it."""
        self.watches.append(watch)

    def watch_tasks(self, watch: TaskWatch) -> None:
        """Kept; a test settles it."""
        self.task_watches.append(watch)

    def notify(self, caller: Caller, method: str, params: Json) -> None:
        self.told.append((caller, method, bytes(params)))

    def refresh(self) -> None:
        self.refreshed += 1


def tools_snapshot(source: str, *names: str) -> Snapshot:
    return Snapshot(tools=tuple(ToolDefinition(source, name, json.dumps({"name": name}).encode()) for name in names))


def item(source: str, member: str, key: str, **more: Any) -> ItemDefinition:
    return ItemDefinition(source, key, json.dumps({member: key, **more}, separators=(",", ":")).encode())


def full_snapshot(
    source: str,
    *,
    tools: Sequence[str] = (),
    prompts: Sequence[str] = (),
    resources: Sequence[str] = (),
    templates: Sequence[str] = (),
    capabilities: dict[str, Any] | None = None,
    **more: Any,
) -> Snapshot:
    """Everything that a source may offer; it declares what it has, unless told otherwise."""
    has = {"tools": tools, "prompts": prompts, "resources": (*resources, *templates)}
    declared = {name: {} for name, items in has.items() if items} | {"completions": {}}
    return Snapshot(
        tools=tools_snapshot(source, *tools).tools,
        prompts=tuple(item(source, "name", name) for name in prompts),
        resources=tuple(item(source, "uri", uri) for uri in resources),
        templates=tuple(item(source, "uriTemplate", template) for template in templates),
        capabilities=json.dumps(declared if capabilities is None else capabilities).encode(),
        **more,
    )


class RouterRig:
    """A router with fake sources, and the answers its calls got."""

    def __init__(self, folder: Path, **options: Any) -> None:
        defaults: dict[str, Any] = {
            "naming": "prefixed",
            "max_name": 48,
            "start_wait_s": 1.5,
            "call_s": 900.0,
            "in_flight_per_source": 2,
            "queue_per_source": 2,
        }
        self.events = Events()
        self.router = Router(RouterOptions(**{**defaults, **options}), self.events, DefinitionStore(folder))
        self.sources: dict[str, FakeSource] = {}
        self.sinks: dict[str, SourceSink] = {}
        self.replies: list[Call] = []
        self.ended: list[Call] = []
        self.events.call_done.append(lambda call, _: self.ended.append(call))

    def add(self, name: str, *tools: str, state: State | None = "ready", **options: Any) -> FakeSource:
        defaults: dict[str, Any] = {
            "rules": NameRules(prefix=name),
            "timeout_s": 60.0,
            "grace_s": 60.0,
            "fingerprint": name,
        }
        source = self.sources[name] = FakeSource()
        self.sinks[name] = self.router.registry.add(name, source, SourceOptions(**{**defaults, **options}))
        if tools:
            self.publish(name, *tools)
        if state is not None:
            self.health(name, state)
        return source

    def publish(self, name: str, *tools: str) -> None:
        self.sinks[name].publish(tools_snapshot(name, *tools))

    def serve(self, name: str, *, state: State | None = "ready", **offered: Any) -> FakeSource:
        """A source that offers more than tools."""
        source = self.sources[name] if name in self.sources else self.add(name, state=None)
        self.sinks[name].publish(full_snapshot(name, **offered))
        if state is not None:
            self.health(name, state)
        return source

    def request(self, method: str, params: dict[str, Any], *, caller: Caller | None = None, **more: Any) -> Call:
        raw = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in params.items()}
        return self.router.request(caller or Caller(), method, raw, self.replies.append, **more)

    def health(self, name: str, state: State, reason: str = "") -> None:
        self.sinks[name].health(Health(state=state, reason=reason))

    def call(
        self,
        name: str,
        members: dict[str, Any] | None = None,
        *,
        caller: Caller | None = None,
        on_notification: OnNotification | None = None,
        reply: Callable[[Call], None] | None = None,
    ) -> Call:
        raw = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in (members or {}).items()}
        meta = {name: msgspec.json.encode(value) for name, value in (members or {}).get("_meta", {}).items()} or None
        return self.router.call_tool(
            caller or Caller(),
            name,
            raw,
            reply or self.replies.append,
            meta=meta,
            on_notification=on_notification,
            progress=on_notification is not None,
        )


def problem_of(call: Call) -> Problem:
    assert isinstance(call.outcome, Failure), call.outcome
    return call.outcome.problem
