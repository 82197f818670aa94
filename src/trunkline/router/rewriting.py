"""Rewrites URIs and task ids between servers and callers, and resolves those that callers send.

Servers give URIs in results that no list has. If several servers may have resources, the URIs given to each principal
are remembered with their server; a URI that would lead to another server is replaced by its address.

Each server makes its own task ids, so callers get ids that are signed for them.

Hardly any call needs this. One that does has its `reply` replaced, so that the others pay nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from trunkline.core.call import Call, Caller, Json, RemoteError, Result
from trunkline.core.server_request import ServerRequest
from trunkline.core.signing import TokenSigner
from trunkline.protocol.jsonrpc import BadMessage, encode, encode_members, members_of
from trunkline.protocol.mcp.capabilities import NO_CAPABILITIES, TASKS, extensions
from trunkline.router.catalog import CatalogViews
from trunkline.router.resources import ResourceLocation, Resources, resource_address

_MOST_PRINCIPALS: Final = 1000
_MOST_URIS: Final = 2000
_LONGEST_URI: Final = 2048
_NOT_RENAMED: Final[Mapping[str, str]] = {}


class UriRewriter:
    """Maps URIs between servers and callers: `rewrite` and `public_uri` one way, `resolve` the other."""

    def __init__(self, views: CatalogViews) -> None:
        self._views = views
        self._given: OrderedDict[str, OrderedDict[str, str]] = OrderedDict()

    def resolve(self, caller: Caller, uri: str) -> ResourceLocation | None:
        """Find the resource of a URI: an address, a listed URI, one given in a result, or one that fits a template."""
        resources = self._views.of(caller).resources
        return (
            resources.by_address(uri)
            or resources.by_uri(uri)
            or self._by_memory(caller.principal, uri, resources)
            or resources.by_template(uri)
        )

    def resolve_or_guess(self, caller: Caller, uri: str) -> ResourceLocation | None:
        """Like `resolve`, but an unknown URI is taken to belong to the only source with resources, if there is one."""
        return self.resolve(caller, uri) or self._views.of(caller).resources.the_only(uri)

    def resolve_template(self, caller: Caller, reference: str) -> ResourceLocation | None:
        """Like `resolve_or_guess`, for a reference that may also be the text of a URI template."""
        resources = self._views.of(caller).resources
        return resources.by_template_text(reference) or self.resolve_or_guess(caller, reference)

    def public_uri(self, caller: Caller, source: str, uri: str) -> str:
        """The URI to give to a caller for one of this source. An unknown URI is remembered with its source."""
        if not self._views.of(caller).resources.several:
            return uri
        location = ResourceLocation(source, uri)
        leads_to = self.resolve(caller, uri)
        if leads_to is None and len(uri) <= _LONGEST_URI:
            self._remember(caller.principal, location)
            return uri
        return uri if leads_to == location else resource_address(location)

    def rewrite(self, caller: Caller, source: str, raw: bytes, renamed: Mapping[str, str] = _NOT_RENAMED) -> bytes:
        """Rewrite the URIs in a result; returns the same object if there is nothing to change. `renamed` maps URIs of
        the source to those by which the caller asked for them."""
        return map_uris(raw, lambda uri: renamed.get(uri) or self.public_uri(caller, source, uri))

    # -- memory -------------------------------------------------------------------------------------------------------

    def _by_memory(self, principal: str, uri: str, resources: Resources) -> ResourceLocation | None:
        given = self._given.get(principal)
        source = given.get(uri) if given is not None else None
        if given is None or source is None:
            return None
        if source not in resources.sources:
            del given[uri]
            return None
        given.move_to_end(uri)
        return ResourceLocation(source, uri)

    def _remember(self, principal: str, location: ResourceLocation) -> None:
        given = self._given.setdefault(principal, OrderedDict())
        self._given.move_to_end(principal)
        given[location.uri] = location.source
        if len(given) > _MOST_URIS:
            given.popitem(last=False)
        if len(self._given) > _MOST_PRINCIPALS:
            self._given.popitem(last=False)


class ResultRewriter:
    """Rewrites the outcome of a call, and the notifications and server requests before it, for the caller."""

    def __init__(self, uri_rewriter: UriRewriter, task_ids: TaskIds) -> None:
        self._uri_rewriter = uri_rewriter
        self._task_ids = task_ids

    def adapt(
        self, call: Call, *, uris: bool = False, tasks: bool = False, renamed: Mapping[str, str] = _NOT_RENAMED
    ) -> None:
        """Rewrite the outcome of the call, with `tasks` also the notifications and server requests before it."""
        reply = call.reply

        def reply_rewritten(call: Call) -> None:
            outcome = call.outcome
            if isinstance(outcome, Result):
                raw = self._rewritten(call, outcome, uris, tasks, renamed)
                if raw is not outcome.raw:
                    call.outcome = type(outcome)(raw, bytes(raw))
            elif renamed and isinstance(outcome, RemoteError):
                call.outcome = RemoteError(map_error_uri(bytes(outcome.raw), lambda uri: renamed.get(uri, uri)))
            reply(call)

        call.reply = reply_rewritten
        if not tasks:
            return
        on_notification, on_server_request = call.on_notification, call.on_server_request

        def notify(method: str, params: Json) -> None:
            if on_notification is not None:
                on_notification(method, self._task_ids.rewrite(call.caller, call.source, params))

        def forward(server_request: ServerRequest) -> None:
            server_request.params = self._task_ids.rewrite(call.caller, call.source, server_request.params)
            if on_server_request is not None:
                on_server_request(server_request)

        call.on_notification = notify if on_notification is not None else None
        call.on_server_request = forward if on_server_request is not None else None

    def _rewritten(self, call: Call, outcome: Result, uris: bool, tasks: bool, renamed: Mapping[str, str]) -> Json:
        raw = outcome.raw
        message = bytes(raw) if outcome.message is None else outcome.message
        if tasks and may_have_task_ids(message):
            raw = self._task_ids.rewrite(call.caller, call.source, raw)
        if (uris or renamed) and may_have_uris(message):
            text = bytes(raw)
            rewritten = self._uri_rewriter.rewrite(call.caller, call.source, text, renamed)
            raw = raw if rewritten is text else rewritten
        return raw


# -- URIs inside results ----------------------------------------------------------------------------------------------
# They stand in resource links and embedded resources of tools and prompts, and in the contents of a resource.

Change = Callable[[str], str]
_Rewrite = Callable[[msgspec.Raw, Change], bytes | None]
_MARK: Final = b'"resource'
_CONTENTS: Final = b'"contents"'
_ESCAPED: Final = b"\\u00"
"""Escapes by which a server may spell letters of these members."""


def may_have_uris(raw: bytes) -> bool:
    """Whether a result may have URIs; a quick test, which most results fail."""
    return _MARK in raw or _CONTENTS in raw or _ESCAPED in raw


def map_uris(raw: bytes, change: Change) -> bytes:
    """Apply `change` to every URI; returns the same object if none changes or the result cannot be read."""
    return _mapped(raw, change, _RESULT) if may_have_uris(raw) else raw


def map_error_uri(raw: bytes, change: Change) -> bytes:
    """Apply `change` to the URI in the data of an error; returns the same object if there is none."""
    return _mapped(raw, change, {"data": _with_uri})


def _mapped(raw: bytes, change: Change, rewrites: dict[str, _Rewrite]) -> bytes:
    try:
        return _object(raw, change, rewrites) or raw
    except (BadMessage, msgspec.MsgspecError, RecursionError):
        return raw


def _object(raw: bytes | msgspec.Raw, change: Change, rewrites: dict[str, _Rewrite]) -> bytes | None:
    """Rewrite some members of an object; returns None if nothing changes. An object with a duplicate member is
    rewritten with the last one, so that no client can read another one."""
    try:
        members, is_clear = members_of(raw, "result"), True
    except BadMessage:
        members, is_clear = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]), False
    changed: dict[str, bytes] = {}
    for name, rewrite in rewrites.items():
        if name in members:
            new = rewrite(members[name], change)
            if new is not None:
                changed[name] = new
    return None if is_clear and not changed else encode_members({**members, **changed})


def _list_of(rewrite: _Rewrite) -> _Rewrite:
    def rewrite_list(raw: msgspec.Raw, change: Change) -> bytes | None:
        items = msgspec.json.decode(raw, type=list[msgspec.Raw])
        new = [rewrite(item, change) for item in items]
        if all(item is None for item in new):
            return None
        return b"[%b]" % b",".join([bytes(old) if item is None else item for old, item in zip(items, new, strict=True)])

    return rewrite_list


def _uri(raw: msgspec.Raw, change: Change) -> bytes | None:
    uri = _text(raw)
    if uri is None:
        return None
    shown = change(uri)
    return None if shown == uri else encode(shown)


def _text(raw: msgspec.Raw) -> str | None:
    """Decode a string; returns None for anything else, so that an odd value does not stop the rewriting."""
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:
        return None


def _members(rewrites: dict[str, _Rewrite]) -> _Rewrite:
    """Rewrites members of what is an object, and leaves alone what is none."""
    return lambda raw, change: _object(raw, change, rewrites) if _is_object(raw) else None


def _is_object(raw: msgspec.Raw) -> bool:
    return bytes(raw).lstrip().startswith(b"{")


_with_uri: Final = _members({"uri": _uri})


class _Block(msgspec.Struct):
    type: msgspec.Raw = msgspec.Raw(b"null")


def _block(raw: msgspec.Raw, change: Change) -> bytes | None:
    """Rewrite one content block: a resource link, an embedded resource, or something without a URI."""
    text = bytes(raw)
    if not _is_object(raw) or (_MARK not in text and _ESCAPED not in text):
        return None
    kind = _text(msgspec.json.decode(raw, type=_Block).type)
    if kind == "resource_link":
        return _with_uri(raw, change)
    return _object(raw, change, {"resource": _with_uri}) if kind == "resource" else None


def _block_or_blocks(raw: msgspec.Raw, change: Change) -> bytes | None:
    several = bytes(raw).lstrip().startswith(b"[")
    return _BLOCKS(raw, change) if several else _block(raw, change)


_BLOCKS: Final = _list_of(_block)
_RESULT: Final[dict[str, _Rewrite]] = {
    "content": _block_or_blocks,
    "contents": _list_of(_with_uri),
    "messages": _list_of(_members({"content": _block_or_blocks})),
    "result": lambda raw, change: _object(raw, change, _RESULT),  # of a finished task
}


# -- tasks ------------------------------------------------------------------------------------------------------------

RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
_TASK_ID: Final = b"taskId"


class TaskLocation(NamedTuple):
    """A source, and its own id of a task."""

    source: str
    task_id: str


def declares_tasks(caller: Caller) -> bool:
    """Whether the caller declared the tasks extension of MCP 2026-07-28."""
    capabilities = caller.capabilities
    return capabilities != NO_CAPABILITIES and TASKS in extensions(capabilities)


class TaskIds:
    """Signs the task ids of servers: callers get ids that are valid only for them. Nothing is stored."""

    def __init__(self) -> None:
        self._signer = TokenSigner()

    def public_id(self, caller: Caller, location: TaskLocation) -> str:
        """The id that this caller gets for a task."""
        return self._signer.sign(_purpose(caller), encode(location))

    def locate(self, caller: Caller, task_id: str) -> TaskLocation | None:
        """The task of a signed id; None if the id was not made here, or for another caller."""
        payload = self._signer.verify(_purpose(caller), task_id)
        return None if payload is None else msgspec.json.decode(payload, type=TaskLocation)

    def rewrite(self, caller: Caller, source: str, raw: Json) -> Json:
        """Replace the server's task ids in a result, or in the parameters of a notification or server request."""
        text = bytes(raw)
        if not may_have_task_ids(text):
            return raw
        return map_task_ids(text, lambda own_id: self.public_id(caller, TaskLocation(source, own_id)))


def _purpose(caller: Caller) -> str:
    return "task" + encode([caller.principal, caller.session]).decode()


def may_have_task_ids(raw: bytes) -> bool:
    """Whether a message may have task ids; a quick test, which hardly any message passes."""
    return _TASK_ID in raw


def map_task_ids(raw: bytes, change: Change) -> bytes:
    """Apply `change` to every task id; returns the same object if there is none."""
    return _mapped(raw, change, _TASK_RESULT)


def _task_id(raw: msgspec.Raw, change: Change) -> bytes:
    return encode(change(msgspec.json.decode(raw, type=str)))


def _if_task(rewrite: _Rewrite) -> _Rewrite:
    return lambda raw, change: rewrite(raw, change) if _TASK_ID in bytes(raw) else None


_TASK: Final = _if_task(lambda raw, change: _object(raw, change, {"taskId": _task_id}))
_TASK_RESULT: Final[dict[str, _Rewrite]] = {
    "taskId": _task_id,
    "task": _TASK,
    "tasks": _if_task(_list_of(_TASK)),
    "_meta": _if_task(lambda raw, change: _object(raw, change, {RELATED_TASK: _TASK})),
}
