"""Where requests other than `tools/call` go: prompts, resources, completions and tasks, each to the server it names.

Names and URIs are the server's own again before it sees them; everything else is as the caller wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from trunkline.core.tool import Snapshot
from trunkline.protocol.jsonrpc import BadMessage, Members, encode, encode_members, members_of, single_line, text_member
from trunkline.protocol.mcp.capabilities import server_capabilities
from trunkline.protocol.mcp.versions import MODERN
from trunkline.router.admission import Admission, Deadlines
from trunkline.router.catalog import PromptEntry
from trunkline.router.path_guard import PathGuard
from trunkline.router.pending_calls import PendingCalls
from trunkline.router.registry import SourceRegistry
from trunkline.router.result_rewriting import ResultRewriter, UriRewriter
from trunkline.router.task_ids import TASKS, TaskIds, declares_tasks

PROMPTS_GET: Final = "prompts/get"
RESOURCES_READ: Final = "resources/read"
COMPLETE: Final = "completion/complete"
_LEGACY_TASKS: Final = frozenset({"tasks/get", "tasks/result", "tasks/cancel"})
_MODERN_TASKS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
_BEFORE_COMPLETIONS: Final = "2024-11-05"
"""Servers of this version may complete without saying so."""
_NO_COMPLETIONS: Final = b'{"completion":{"values":[],"total":0,"hasMore":false}}'
_REQUIRED: Final[dict[str, object]] = {"extensions": {TASKS: {}}}

_Router = Callable[[Call, Members], None]


class RequestRouter:
    def __init__(
        self,
        registry: SourceRegistry,
        deadlines: Deadlines,
        path_guard: PathGuard,
        waiting: PendingCalls,
        uri_rewriter: UriRewriter,
        tasks: TaskIds,
        result_rewriter: ResultRewriter,
    ) -> None:
        self._registry = registry
        self._deadlines = deadlines
        self._path_guard = path_guard
        self._pending_calls = waiting
        self._uri_rewriter = uri_rewriter
        self._task_ids = tasks
        self._result_rewriter = result_rewriter
        self._routers: dict[str, _Router] = {
            PROMPTS_GET: self._get_prompt,
            RESOURCES_READ: self._read_resource,
            COMPLETE: self._complete,
        } | dict.fromkeys(_LEGACY_TASKS | _MODERN_TASKS, self._ask_task)

    def route(self, call: Call, members: Members) -> None:
        router = self._routers.get(call.method)
        if router is None:
            call.finish(Failure(Problem(code=UNKNOWN_METHOD, message=f"Unknown method: {call.method}")))
            return
        try:
            router(call, members)
        except BadMessage as error:
            call.finish(Failure(error.problem))

    def _send(self, call: Call, source: str, params: bytes) -> None:
        call.source, call.params = source, params
        admission = self._registry.admissions[source]
        blocks = call.method == "tasks/result"  # until the task is done
        timeout_s = self._deadlines.max_call_s if blocks else admission.options.timeout_s
        admit = partial(self._admit, call, admission, timeout_s)
        if not admission.options.guards_paths or not self._path_guard.stops(call, 0, timeout_s, admit):
            admit()

    def _admit(self, call: Call, admission: Admission, timeout_s: float) -> None:
        self._deadlines.set(call, timeout_s)
        if not call.done:
            admission.admit(call)

    # -- prompts --------------------------------------------------------------------------------------------------

    def _get_prompt(self, call: Call, members: Members) -> None:
        entry = self._find_prompt(call, members, _text(members, "name", "params.name"))
        if entry is not None:
            if self._has_links(call, entry.source):
                self._result_rewriter.adapt(call, uris=True)
            self._send(call, entry.source, _params(members, {"name": encode(entry.name)}))

    def _find_prompt(self, call: Call, members: Members, name: str) -> PromptEntry | None:
        """The prompt of this name. Without one the call is taken care of: it waits, or was refused."""
        prompts = self._registry.views.of(call.caller).prompts
        entry = prompts.find(name)
        if entry is not None:
            return entry
        candidates = self._registry.catalog.sources_that_may_have(name)
        again = partial(self.route, call, members)
        if not self._pending_calls.takes(call, members, candidates, again, partial(_is_named, name)):
            addresses = prompts.addresses_of(without_own_prefix(name))
            which = f" (which one: {', '.join(addresses)}?)" if addresses else ""
            call.finish(Failure(unknown_prompt(f"Unknown prompt: {name}{which}")))
        return None

    # -- resources ------------------------------------------------------------------------------------------------

    def _read_resource(self, call: Call, members: Members) -> None:
        uri = _text(members, "uri", "params.uri")
        location = self._uri_rewriter.resolve_or_guess(call.caller, uri)
        if location is None:
            self._route_unknown(call, members, uri)
        else:
            renamed = {location.uri: uri} if location.uri != uri else {}
            rewrites_uris = self._has_links(call, location.source)
            if rewrites_uris or renamed:
                self._result_rewriter.adapt(call, uris=rewrites_uris, renamed=renamed)
            self._send(call, location.source, _params(members, {"uri": encode(location.uri)}))

    def _route_unknown(self, call: Call, members: Members, uri: str) -> None:
        """No such resource, or a server that has not said yet what it offers."""
        again = partial(self.route, call, members)
        if not self._pending_calls.takes(call, members, self._registry.catalog.sources, again, _is_never_meant):
            call.finish(Failure(unknown_resource(uri, self._pending_calls.unpublished(self._registry.servers()))))

    def _has_links(self, call: Call, source: str) -> bool:
        resources = self._registry.views.of(call.caller).resources
        return resources.several and source in resources.sources

    # -- completions ----------------------------------------------------------------------------------------------

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
        """A server that completes nothing need not be bothered: clients ask because others here do."""
        offer = self._registry.catalog.snapshot(source)
        if offer is not None and not _may_complete(offer):
            call.source = source
            call.finish(Result(_NO_COMPLETIONS, _NO_COMPLETIONS))
        else:
            self._send(call, source, _params(members, {"ref": _params(reference, own)}))

    # -- tasks ----------------------------------------------------------------------------------------------------

    def _ask_task(self, call: Call, members: Members) -> None:
        """A task is asked of the server that made it, by whoever made it there."""
        modern = call.caller.version in MODERN
        if call.method not in (_MODERN_TASKS if modern else _LEGACY_TASKS):
            call.finish(Failure(Problem(code=UNKNOWN_METHOD, message=f"Unknown method: {call.method}")))
            return
        if modern and not declares_tasks(call.caller):
            call.finish(Failure(tasks_not_declared()))
            return
        location = self._task_ids.locate(call.caller, _text(members, "taskId", "params.taskId"))
        if location is None or location.source not in self._registry.admissions:
            hint = "ids are good for the client that got them, as long as the gateway runs"
            call.finish(Failure(Problem(code=UNKNOWN_TASK, message="Unknown task", hint=hint)))
            return
        self._result_rewriter.adapt(call, tasks=True, uris=self._has_links(call, location.source))
        self._send(call, location.source, _params(members, {"taskId": encode(location.task_id)}))


def _may_complete(offer: Snapshot) -> bool:
    return offer.protocol_version == _BEFORE_COMPLETIONS or "completions" in server_capabilities(offer.capabilities)


def unknown_prompt(message: str) -> Problem:
    return Problem(code=UNKNOWN_PROMPT, message=message, hint="`prompts/list` shows the prompts there are")


def unknown_resource(uri: str, silent: Sequence[str] = ()) -> Problem:
    """`silent` are servers that may have it, and have not told what they offer."""
    there = "`resources/list` shows the resources there are"
    return Problem(
        code=UNKNOWN_RESOURCE,
        message=f"Unknown resource: {uri}",
        hint=f"{there}; not heard of so far: {', '.join(silent)}" if silent else there,
        extra=(("uri", uri),),
    )


def tasks_not_declared() -> Problem:
    message = f"The client did not declare the extension `{TASKS}`"
    return Problem(code=CAPABILITY_MISSING, message=message, extra=(("requiredCapabilities", _REQUIRED),))


def _is_named(name: str, admission: Admission) -> bool:
    return names_source(name, admission.name, admission.options.rules.prefix)


def _is_never_meant(admission: Admission) -> bool:
    """A URI does not say whose it is, unless it is an address, and that is no riddle."""
    return False


def _text(members: Members, name: str, what: str) -> str:
    try:
        text = text_member(members, name)
    except BadMessage:
        text = None
    if text is None:
        raise BadMessage(INVALID_PARAMS, f"`{what}` must be a string")
    return text


def _params(members: Members, own: Mapping[str, bytes]) -> bytes:
    """The parameters for the server, on one line: what names the thing is the server's own, the rest as it came.

    A member that differs from those in case alone is left out: it would be a second name to a server that ignores case.
    """
    routed_by = {"_meta", *(name.casefold() for name in own)}
    rest = {name: single_line(value) for name, value in members.items() if name.casefold() not in routed_by}
    return encode_members({**own, **rest})
