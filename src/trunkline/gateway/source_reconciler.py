"""Starts, replaces, adjusts and ends sources so that they match the configuration.

A source whose connection settings are unchanged keeps its process and its calls, whatever else about it changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from trunkline.config.settings import secrets_of
from trunkline.config.sources import SourceSection, UnreadySource
from trunkline.core.call import Call, Failure
from trunkline.core.errors import SOURCE_DOWN, Problem
from trunkline.core.events import Events
from trunkline.core.source import Health, Sink, Source, ToolsOnlySource
from trunkline.router.admission import Admission
from trunkline.router.definitions import fingerprint
from trunkline.router.options import CacheRules, NameRules, SourceOptions
from trunkline.router.registry import SourceRegistry, SourceSink
from trunkline.router.sanitizing import Redact
from trunkline.runtime.source_context import SourceContext
from trunkline.sources import load_kind
from trunkline.telemetry.redaction import Redactor

DRAIN_S: Final = 30.0
"""How long calls in flight on a removed source may take to end."""
_STOP_S: Final = 20.0
_FILE: Final = "file"


@dataclass(frozen=True, slots=True)
class SourceChanges:
    """What was done with each source; `adjusted` ones got new rules and kept their processes."""

    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    adjusted: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = [
            (word, names) for word in ("added", "replaced", "adjusted", "removed") if (names := getattr(self, word))
        ]
        parts = [f"{word} {', '.join(names)}" for word, names in named]
        return "; ".join([*parts, f"{len(self.unchanged)} unchanged"])

    def as_json(self) -> dict[str, object]:
        lists: dict[str, object] = {word: list(names) for word, names in asdict(self).items()}
        return lists | {"unchanged": len(self.unchanged)}


@dataclass(eq=False, slots=True)
class _RunningSource:
    """One source and the task that runs it; no task while it is disabled."""

    section: SourceSection
    origin: str
    task: asyncio.Task[None] | None = None


class SourceReconciler:
    """Owns the running sources and their tasks."""

    def __init__(self, registry: SourceRegistry, context: SourceContext, events: Events) -> None:
        self._registry = registry
        self._context = context
        self._events = events
        self._running: dict[str, _RunningSource] = {}
        self._admissions: dict[Admission, _RunningSource] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        registry.on_source_retired.append(self._retired)

    def protect(self, files: tuple[str, ...], roots: tuple[str, ...]) -> set[str]:
        """Set what sources made from now on protect. Returns the files and roots that are new or gone."""
        before, self._context = self._context, replace(self._context, protected_files=files, roots=roots)
        return {*before.protected_files, *before.roots} ^ {*files, *roots}

    def apply(self, sections: Mapping[str, SourceSection], from_api: Container[str] = ()) -> SourceChanges:
        """Make these the sources, in this order. Returns at once: servers start and end in the background."""
        removed = tuple(name for name in self._running if name not in sections)
        for name in removed:
            del self._running[name]
            self._registry.remove(name)
        done: dict[str, list[str]] = {"added": [], "replaced": [], "adjusted": [], "unchanged": []}
        for name, section in sections.items():
            origin = "api" if name in from_api else _FILE
            done[self._reconcile(name, section, origin)].append(name)
        self._registry.reorder(sections)
        return SourceChanges(removed=removed, **{word: tuple(names) for word, names in done.items()})

    def reconnect(self, name: str) -> None:
        """Replace a source's process or session; calls in flight end on the old one."""
        source_run = self._running[name]
        self._replace(name, _RunningSource(source_run.section, source_run.origin))

    def _reconcile(self, name: str, section: SourceSection, origin: str) -> str:
        source_run = self._running.get(name)
        if source_run is None:
            source_run = self._running[name] = _RunningSource(section, origin)
            self._start(name, source_run, self._registry.add)
            return "added"
        if source_run.section == section and source_run.origin == origin:
            return "unchanged"
        if not section.same_connection(source_run.section):
            self._replace(name, _RunningSource(section, origin))
            return "replaced"
        source_run.section, source_run.origin = section, origin
        self._registry.update(name, source_options(name, section, origin, self._redact_for(source_run)))
        return "adjusted"

    def _replace(self, name: str, source_run: _RunningSource) -> None:
        self._running[name] = source_run
        self._start(name, source_run, self._registry.replace)

    def _start(
        self, name: str, source_run: _RunningSource, join: Callable[[str, Source, SourceOptions], SourceSink]
    ) -> None:
        section, redact = source_run.section, self._redact_for(source_run)
        source = self._build(name, section, redact)
        sink = join(name, source, source_options(name, section, source_run.origin, redact))
        self._admissions[sink.admission] = source_run
        if section.enabled:
            source_run.task = self._spawn(self._run(name, source, sink), name)

    def _build(self, name: str, section: SourceSection, redact: Redact) -> Source:
        """Build a source, or a stand-in that is down and says why."""
        if isinstance(section, UnreadySource):
            return _UnconfiguredSource(section.obstacles)
        try:
            return load_kind(section.kind).build(name, section, replace(self._context, redact=redact))
        except Exception as error:
            return _UnbuildableSource(error)

    def _redact_for(self, source_run: _RunningSource) -> Redact:
        """A function that hides secrets in a source's text; a registered service has secrets of its own."""
        of_all = self._context.redact
        if source_run.origin == _FILE:
            return of_all
        own = Redactor(secrets_of(source_run.section))
        return lambda text: own(of_all(text))

    async def _run(self, name: str, source: Source, sink: Sink) -> None:
        """Run a source until it is cancelled. A bug in it takes down that source and nothing else."""
        try:
            await source.run(sink)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._crashed(name, sink, error)  # not cancelled by us: the cancellation of something else reached it
        except Exception as error:
            self._crashed(name, sink, error)

    def _crashed(self, name: str, sink: Sink, error: BaseException) -> None:
        reason = f"internal error: {type(error).__name__}: {error}"
        self._events.note("error", "internal", reason, source=name)
        sink.health(Health(state="down", reason=reason, since=time.time(), last_error=reason))

    # -- removal --------------------------------------------------------------------------------------------------

    def _retired(self, admission: Admission) -> None:
        if admission in self._admissions:  # connected apps are ended by their listener
            self._spawn(self._drain(self._admissions.pop(admission), admission), f"drain {admission.name}")

    async def _drain(self, source_run: _RunningSource, admission: Admission) -> None:
        """Let calls in flight end, then end the source."""
        try:
            end = asyncio.get_running_loop().time() + DRAIN_S
            while self._registry.busy(admission) and asyncio.get_running_loop().time() < end:
                await asyncio.sleep(0.02)
        finally:
            if source_run.task is not None:
                self._cancel(source_run.task)
                await asyncio.wait([source_run.task], timeout=_STOP_S)
            self._registry.release(admission)

    # -- tasks ----------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._ending.discard(task)

    def _cancel(self, task: asyncio.Task[None]) -> None:
        """Cancel a task once: a second cancellation would interrupt its clean-up.

        `task.cancelling()` cannot tell: it is also true while a timeout inside the task is about to fire.
        """
        if task not in self._ending and not task.done():
            self._ending.add(task)
            task.cancel()

    async def close(self) -> None:
        """End every source, including those that are draining."""
        tasks = list(self._tasks)
        for task in tasks:
            self._cancel(task)
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_S)


class _UnbuildableSource(ToolsOnlySource):
    """A stand-in for a source that could not be built."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def run(self, sink: Sink) -> None:
        raise self._error

    def submit(self, call: Call) -> None:
        call.finish(Failure(Problem(code=SOURCE_DOWN, message=f"Server {call.source} is down", source=call.source)))


class _UnconfiguredSource(_UnbuildableSource):
    """A stand-in for a source whose settings lack something, such as a variable, until a reload provides it."""

    def __init__(self, obstacles: Sequence[str]) -> None:
        self._reason = "; ".join(obstacles)

    async def run(self, sink: Sink) -> None:
        hint = "`trunkline check` shows where; the gateway sees a newly set variable only after a restart"
        health = Health(state="down", reason=self._reason, since=time.time(), last_error=self._reason, hint=hint)
        sink.health(health)


def source_options(name: str, section: SourceSection, origin: str, redact: Redact) -> SourceOptions:
    tools = section.tools
    return SourceOptions(
        rules=NameRules(prefix=section.prefix, allow=tools.allow, deny=tools.deny, rename=tools.rename),
        timeout_s=section.timeout,
        grace_s=section.grace,
        timeouts_s={**section.default_timeouts, **tools.timeouts},
        fingerprint=fingerprint(name, section.connection()),
        enabled=section.enabled,
        kind=section.of_kind if isinstance(section, UnreadySource) else section.kind,
        origin=origin,
        cache=_cache_rules(section),
        guards_paths=section.guard.path_traversal,
        redact=redact,
        withheld=section.only_by_name.difference(tools.allow),
    )


def _cache_rules(section: SourceSection) -> CacheRules | None:
    cache = section.cache
    if not (cache.tools or cache.assume_read_only):
        return None
    per_client = section.sessions == "per_client"
    return CacheRules(
        tools=cache.tools, assume_read_only=cache.assume_read_only, ttl_s=cache.ttl, server_per_client=per_client
    )
