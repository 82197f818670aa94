"""Routes requests other than `tools/call`: prompts, resources, completions and tasks.

Names, URIs and task ids are replaced by the server's own; everything else is passed on as the caller wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from trunkline.core.call import Call, Failure, Result
from trunkline.core.errors import (
    CAPABILITY_MISSING,
    INVALID_PARAMS,
    UNKNOWN_METHOD,
    UNKNOWN_PROMPT,
    UNKNOWN_RESOURCE,
    UNKNOWN_TASK,
    Problem,
)
from trunkline.core.names import names_source, without_own_prefix
from trunkline.protocol.jsonrpc import BadMessage, Members, encode, encode_members, members_of, single_line, text_member
from trunkline.protocol.mcp.capabilities import server_capabilities
from trunkline.protocol.mcp.methods import (
    COMPLETION_COMPLETE,
    PROMPTS_GET,
    RESOURCES_READ,
    TASKS_CANCEL,
    TASKS_GET,
    TASKS_RESULT,
    TASKS_UPDATE,
)
from trunkline.protocol.mcp.versions import MODERN
from trunkline.router.admission import Deadlines
from trunkline.router.catalog import PromptEntry
from trunkline.router.path_guard import PathGuard
from trunkline.router.registry import SourceRegistry
from trunkline.router.rewriting import TASKS, ResultRewriter, TaskIds, UriRewriter, declares_tasks
from trunkline.runtime.safe_callbacks import resume_safely

_LEAST_BYTES: Final = 1024
"""What a held call takes besides its parameters."""


class PendingCalls:
    """Calls for something that no source is known to offer, held while a source that may offer it is still starting."""

    def __init__(self, registry: SourceRegistry, deadlines: Deadlines) -> None:
        self._registry = registry
        self._deadlines = deadlines
        self.calls: dict[Call, Callable[[], None]] = {}
        self.draining = False

    def takes(self, call: Call, members: Members, name: str | None, route_again: Callable[[], None]) -> bool:
        """Hold the call or let a source refuse it. Returns False if the caller has to fail it as unknown. `name` is the
        tool's or prompt's, None for a resource, because only its address names a source, and that is always resolved.
        The call is held while a source that may have it is starting and has not published a snapshot. A source that is
        down refuses it with its own reason, but only if the name certainly is one of that source."""
        admissions, catalog = self._registry.admissions, self._registry.catalog
        unpublished = self.unpublished(catalog.sources if name is None else catalog.sources_that_may_have(name))
        starting = [source for source in unpublished if admissions[source].health.state == "starting"]
        if starting and not self.draining:
            size_bytes = _LEAST_BYTES + sum(map(len, members.values()))
            problem = self._registry.call_memory.reserve(call, size_bytes)
            if problem is not None:
                call.finish(Failure(problem))
                return True
            if call.timer is None:
                self._deadlines.set(call, max(admissions[source].options.timeout_s for source in starting))
            self.calls[call] = route_again
            return True
        refusing = starting or [
            source
            for source in unpublished
            if name is not None
            and admissions[source].refuses
            and names_source(name, source, admissions[source].options.rules.prefix)
        ]
        if refusing:
            call.source, call.tool = refusing[0], ""  # telemetry gets no tool name that no server has confirmed
            admissions[refusing[0]].admit(call)
        return bool(refusing)

    def unpublished(self, candidates: Iterable[str]) -> list[str]:
        """The candidates that have not published what they offer."""
        return [source for source in candidates if self._registry.catalog.snapshot(source) is None]

    def retry(self) -> None:
        """Route the held calls again: a source has changed."""
        if self.calls:
            held, self.calls = self.calls, {}
            for call, route_again in held.items():
                if not call.done:
                    resume_safely(call, route_again)


_LEGACY_TASKS: Final = frozenset({TASKS_GET, TASKS_RESULT, TASKS_CANCEL})
_MODERN_TASKS: Final = frozenset({TASKS_GET, TASKS_UPDATE, TASKS_CANCEL})
_BEFORE_COMPLETIONS: Final = "2024-11-05"
"""Servers of this version may complete without declaring it."""
_NO_COMPLETIONS: Final = b'{"completion":{"values":[],"total":0,"hasMore":false}}'


class RequestRouter:
    """Finds the source of each request and hands the request to its admission."""

    def __init__(
        self,
        registry: SourceRegistry,
        deadlines: Deadlines,
        path_guard: PathGuard,
        pending_calls: PendingCalls,
        uri_rewriter: UriRewriter,
        task_ids: TaskIds,
        result_rewriter: ResultRewriter,
    ) -> None:
        self._registry = registry
        self._deadlines = deadlines
        self._path_guard = path_guard
        self._pending_calls = pending_calls
        self._uri_rewriter = uri_rewriter
        self._task_ids = task_ids
        self._result_rewriter = result_rewriter
        self._routes: dict[str, Callable[[Call, Members], None]] = {
            PROMPTS_GET: self._get_prompt,
            RESOURCES_READ: self._read_resource,
            COMPLETION_COMPLETE: self._complete,
        } | dict.fromkeys(_LEGACY_TASKS | _MODERN_TASKS, self._route_task)

    def route(self, call: Call, members: Members) -> None:
        route = self._routes.get(call.method)
        if route is None:
            call.finish(Failure(Problem(code=UNKNOWN_METHOD, message=f"Unknown method: {call.method}")))
            return
        try:
            route(call, members)
        except BadMessage as error:
            call.finish(Failure(error.problem))

    def _send(self, call: Call, source: str, params: bytes) -> None:
        call.source, call.params = source, params
        admission = self._registry.admissions[source]
        blocks = call.method == TASKS_RESULT  # until the task has finished
        timeout_s = self._deadlines.max_call_s if blocks else admission.options.timeout_s

        def admit() -> None:
            self._deadlines.set(call, timeout_s)
            if not call.done:
                admission.admit(call)

        if not admission.options.guards_paths or not self._path_guard.stops(call, 0, timeout_s, admit):
            admit()

    # -- prompts ------------------------------------------------------------------------------------------------------

    def _get_prompt(self, call: Call, members: Members) -> None:
        entry = self._find_prompt(call, members, _text(members, "name", "params.name"))
        if entry is not None:
            if self._has_uris(call, entry.source):
                self._result_rewriter.adapt(call, uris=True)
            self._send(call, entry.source, _params(members, {"name": encode(entry.name)}))

    def _find_prompt(self, call: Call, members: Members, name: str) -> PromptEntry | None:
        """Find the prompt of this name. If there is none, the call was failed or held, and None is returned."""
        prompts = self._registry.views.of(call.caller).prompts
        entry = prompts.find(name)
        if entry is not None:
            return entry
        if not self._pending_calls.takes(call, members, name, partial(self.route, call, members)):
            addresses = prompts.addresses_of(without_own_prefix(name))
            ambiguity = f" (ambiguous: {', '.join(addresses)})" if addresses else ""
            message, hint = f"Unknown prompt: {name}{ambiguity}", "`prompts/list` shows the prompts there are"
            call.finish(Failure(Problem(code=UNKNOWN_PROMPT, message=message, hint=hint)))
        return None

    # -- resources ----------------------------------------------------------------------------------------------------

    def _read_resource(self, call: Call, members: Members) -> None:
        uri = _text(members, "uri", "params.uri")
        location = self._uri_rewriter.resolve_or_guess(call.caller, uri)
        if location is None:
            self._route_unknown(call, members, uri)
        else:
            renamed = {location.uri: uri} if location.uri != uri else {}
            rewrites_uris = self._has_uris(call, location.source)
            if rewrites_uris or renamed:
                self._result_rewriter.adapt(call, uris=rewrites_uris, renamed=renamed)
            self._send(call, location.source, _params(members, {"uri": encode(location.uri)}))

    def _route_unknown(self, call: Call, members: Members, uri: str) -> None:
        """Hold a request for an unknown resource while a source is starting; otherwise fail it."""
        if not self._pending_calls.takes(call, members, None, partial(self.route, call, members)):
            call.finish(Failure(unknown_resource(uri, self._pending_calls.unpublished(self._registry.servers()))))

    def _has_uris(self, call: Call, source: str) -> bool:
        resources = self._registry.views.of(call.caller).resources
        return resources.several and source in resources.sources

    # -- completions --------------------------------------------------------------------------------------------------

    def _complete(self, call: Call, members: Members) -> None:
        if "ref" not in members:
            raise BadMessage(INVALID_PARAMS, "`params.ref` must be an object")
        reference = members_of(members["ref"], "`params.ref`")
        kind = _text(reference, "type", "params.ref.type")
        if kind == "ref/prompt":
            entry = self._find_prompt(call, members, _text(reference, "name", "params.ref.name"))
            if entry is not None:
                self._send_completion(call, entry.source, members, reference, {"name": encode(entry.name)})
        elif kind == "ref/resource":
            uri = _text(reference, "uri", "params.ref.uri")
            location = self._uri_rewriter.resolve_template(call.caller, uri)
            if location is None:
                self._route_unknown(call, members, uri)
            else:
                self._send_completion(call, location.source, members, reference, {"uri": encode(location.uri)})
        else:
            raise BadMessage(INVALID_PARAMS, "`params.ref.type` must be `ref/prompt` or `ref/resource`")

    def _send_completion(
        self, call: Call, source: str, members: Members, reference: Members, own: Mapping[str, bytes]
    ) -> None:
        """Send a completion, or answer it here if the server has none: clients ask because other servers have."""
        snapshot = self._registry.catalog.snapshot(source)
        if (
            snapshot is not None
            and snapshot.protocol_version != _BEFORE_COMPLETIONS
            and "completions" not in server_capabilities(snapshot.capabilities)
        ):
            call.source = source
            call.finish(Result(_NO_COMPLETIONS, _NO_COMPLETIONS))
        else:
            self._send(call, source, _params(members, {"ref": _params(reference, own)}))

    # -- tasks --------------------------------------------------------------------------------------------------------

    def _route_task(self, call: Call, members: Members) -> None:
        """Route a request about a task to the server that runs it."""
        modern = call.caller.version in MODERN
        if call.method not in (_MODERN_TASKS if modern else _LEGACY_TASKS):
            call.finish(Failure(Problem(code=UNKNOWN_METHOD, message=f"Unknown method: {call.method}")))
            return
        if modern and not declares_tasks(call.caller):
            call.finish(Failure(tasks_not_declared()))
            return
        location = self._task_ids.locate(call.caller, _text(members, "taskId", "params.taskId"))
        if location is None or location.source not in self._registry.admissions:
            hint = "task ids are valid for the client that received them, until the gateway restarts"
            call.finish(Failure(Problem(code=UNKNOWN_TASK, message="Unknown task", hint=hint)))
            return
        self._result_rewriter.adapt(call, tasks=True, uris=self._has_uris(call, location.source))
        self._send(call, location.source, _params(members, {"taskId": encode(location.task_id)}))


def unknown_resource(uri: str, unpublished: Sequence[str] = ()) -> Problem:
    """`unpublished` are sources that may have it and have not published what they offer."""
    there = "`resources/list` shows the resources there are"
    return Problem(
        code=UNKNOWN_RESOURCE,
        message=f"Unknown resource: {uri}",
        hint=f"{there}; not listed yet: {', '.join(unpublished)}" if unpublished else there,
        extra=(("uri", uri),),
    )


def tasks_not_declared() -> Problem:
    message = f"The client did not declare the extension `{TASKS}`"
    required: dict[str, object] = {"extensions": {TASKS: {}}}
    return Problem(code=CAPABILITY_MISSING, message=message, extra=(("requiredCapabilities", required),))


def _text(members: Members, name: str, what: str) -> str:
    try:
        text = text_member(members, name)
    except BadMessage:
        text = None
    if text is None:
        raise BadMessage(INVALID_PARAMS, f"`{what}` must be a string")
    return text


def _params(members: Members, own: Mapping[str, bytes]) -> bytes:
    """Encode the parameters for the server on one line, with its own names in place of the caller's. A member that
    differs from one of `own` only in case is dropped: a server that ignores case would take it for that."""
    routed_by = {"_meta", *(name.casefold() for name in own)}
    rest = {name: single_line(value) for name, value in members.items() if name.casefold() not in routed_by}
    return encode_members({**own, **rest})
