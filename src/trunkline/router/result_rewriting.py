"""Whose a URI is for one caller: listed, given in a result, or fitting a template.

Servers give URIs in results that no list has. Where several servers have resources, or may turn out to have some, each
principal's are remembered here with the server that gave them; one that would lead to another server is shown as an
address of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from trunkline.core.call import Call, Caller, Json, RemoteError, Result
from trunkline.core.server_request import ServerRequest
from trunkline.protocol.jsonrpc import BadMessage, encode, encode_members, members_of
from trunkline.router.catalog import CatalogViews
from trunkline.router.resources import ResourceLocation, Resources, resource_address
from trunkline.router.task_ids import TaskIds, may_have_task_ids

_MOST_PRINCIPALS: Final = 1000
_MOST_URIS: Final = 2000
_LONGEST_URI: Final = 2048
_AS_IT_IS: Final[Mapping[str, str]] = {}


class UriRewriter:
    """`learn` and `shown` take what a server gave to a caller, `resolve` what a caller asks for."""

    def __init__(self, views: CatalogViews) -> None:
        self._views = views
        self._given: OrderedDict[str, OrderedDict[str, str]] = OrderedDict()

    def resolve(self, caller: Caller, uri: str) -> ResourceLocation | None:
        """Where this URI leads: an address, a listed URI, one that was given in a result, or one of a template."""
        resources = self._views.of(caller).resources
        return (
            resources.by_address(uri)
            or resources.by_uri(uri)
            or self._by_memory(caller.principal, uri, resources)
            or resources.by_template(uri)
        )

    def resolve_or_guess(self, caller: Caller, uri: str) -> ResourceLocation | None:
        """The same, and for a URI that left no trace the only server that has resources."""
        return self.resolve(caller, uri) or self._views.of(caller).resources.the_only(uri)

    def resolve_template(self, caller: Caller, reference: str) -> ResourceLocation | None:
        """The same for a reference that may be the text of a template."""
        resources = self._views.of(caller).resources
        return resources.by_template_text(reference) or self.resolve_or_guess(caller, reference)

    def shown(self, caller: Caller, source: str, uri: str) -> str:
        """What the caller shall call a URI that this server gave it; remembered where nothing else says so."""
        if not self._views.of(caller).resources.several:
            return uri
        place = ResourceLocation(source, uri)
        leads_to = self.resolve(caller, uri)
        if leads_to is None and len(uri) <= _LONGEST_URI:
            self._remember(caller.principal, place)
            return uri
        return uri if leads_to == place else resource_address(place)

    def learn(self, caller: Caller, source: str, raw: bytes, renamed: Mapping[str, str] = _AS_IT_IS) -> bytes:
        """A result with the URIs that its caller can use; the same object where all are as they should be.

        `renamed` are URIs that the caller knows under another name: those that it asked for.
        """
        return map_uris(raw, lambda uri: renamed.get(uri) or self.shown(caller, source, uri))

    # -- memory ---------------------------------------------------------------------------------------------------

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

    def _remember(self, principal: str, place: ResourceLocation) -> None:
        given = self._given.setdefault(principal, OrderedDict())
        self._given.move_to_end(principal)
        given[place.uri] = place.source
        if len(given) > _MOST_URIS:
            given.popitem(last=False)
        if len(self._given) > _MOST_PRINCIPALS:
            self._given.popitem(last=False)


# What has to be changed in a server's answer before its caller sees it: URIs that lead elsewhere, ids of tasks.
#
# Hardly any call needs it. One that does has its `reply` replaced, so that the others pay nothing.

_NOT_RENAMED: Final[Mapping[str, str]] = {}


class ResultRewriter:
    def __init__(self, links: UriRewriter, tasks: TaskIds) -> None:
        self._uri_rewriter = links
        self._task_ids = tasks

    def adapt(
        self, call: Call, *, uris: bool = False, tasks: bool = False, renamed: Mapping[str, str] = _NOT_RENAMED
    ) -> None:
        """Adapt the answer to this call when it comes; with `tasks`, what its server says and asks meanwhile too."""
        reply = call.reply

        def adapted(call: Call) -> None:
            outcome = call.outcome
            if isinstance(outcome, Result):
                raw = self._adapted(call, outcome, uris, tasks, renamed)
                if raw is not outcome.raw:
                    call.outcome = type(outcome)(raw, bytes(raw))
            elif renamed and isinstance(outcome, RemoteError):
                call.outcome = RemoteError(map_error_uri(bytes(outcome.raw), lambda uri: renamed.get(uri, uri)))
            reply(call)

        call.reply = adapted
        if tasks:
            self._adapt_meanwhile(call)

    def _adapt_meanwhile(self, call: Call) -> None:
        on_notification, ask = call.on_notification, call.on_server_request

        def noticed(method: str, params: Json) -> None:
            if on_notification is not None:
                on_notification(method, self._task_ids.to_caller(call.caller, call.source, params))

        def asked(server_request: ServerRequest) -> None:
            server_request.params = self._task_ids.to_caller(call.caller, call.source, server_request.params)
            if ask is not None:
                ask(server_request)

        call.on_notification = noticed if on_notification is not None else None
        call.on_server_request = asked if ask is not None else None

    def _adapted(self, call: Call, outcome: Result, uris: bool, tasks: bool, renamed: Mapping[str, str]) -> Json:
        raw = outcome.raw
        message = bytes(raw) if outcome.message is None else outcome.message
        if tasks and may_have_task_ids(message):
            raw = self._task_ids.to_caller(call.caller, call.source, raw)
        if (uris or renamed) and may_have_uris(message):
            text = bytes(raw)
            learned = self._uri_rewriter.learn(call.caller, call.source, text, renamed)
            raw = raw if learned is text else learned
        return raw


# The URIs of resources inside results: links and embedded resources of tools and prompts, contents of a reading.

Change = Callable[[str], str]
_Rewrite = Callable[[msgspec.Raw, Change], bytes | None]
_MARK: Final = b'"resource'
_CONTENTS: Final = b'"contents"'
_ESCAPED: Final = b"\\u00"
"""How a server may spell letters of those so that they are not seen."""


def may_have_uris(raw: bytes) -> bool:
    """A cheap test: most results have none and need not be read."""
    return _MARK in raw or _CONTENTS in raw or _ESCAPED in raw


def map_uris(raw: bytes, change: Change) -> bytes:
    """The result with every URI changed; the same object where none is, or where it cannot be read for sure."""
    if not may_have_uris(raw):
        return raw
    try:
        return _object(raw, change, _RESULT) or raw
    except (BadMessage, msgspec.MsgspecError, RecursionError):
        return raw


def map_error_uri(raw: bytes, change: Change) -> bytes:
    """An error object whose data names a resource, with that URI changed; the same object where nothing is."""
    try:
        return _object(raw, change, {"data": _with_uri}) or raw
    except (BadMessage, msgspec.MsgspecError, RecursionError):
        return raw


def _object(raw: bytes | msgspec.Raw, change: Change, rewrites: dict[str, _Rewrite]) -> bytes | None:
    """The object with some of its members rewritten, None when that changes nothing.

    What has a member twice is written anew with the last one: no client finds another URI in it than we did.
    """
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
    """None for anything else: one odd value hides nothing of what is beside it."""
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:
        return None


def _with_uri(raw: msgspec.Raw, change: Change) -> bytes | None:
    return _object(raw, change, {"uri": _uri}) if _is_object(raw) else None


def _is_object(raw: msgspec.Raw) -> bool:
    return bytes(raw).lstrip().startswith(b"{")


def _block(raw: msgspec.Raw, change: Change) -> bytes | None:
    """One block of content: a link, an embedded resource, or something without a URI."""
    text = bytes(raw)
    if not _is_object(raw) or (_MARK not in text and _ESCAPED not in text):
        return None
    kind = _text(msgspec.json.decode(raw, type=_Block).type)
    if kind == "resource_link":
        return _with_uri(raw, change)
    return _object(raw, change, {"resource": _with_uri}) if kind == "resource" else None


class _Block(msgspec.Struct):
    type: msgspec.Raw = msgspec.Raw(b"null")


def _message(raw: msgspec.Raw, change: Change) -> bytes | None:
    """A message of a prompt: its content is one block, or several."""
    return _object(raw, change, {"content": _block_or_blocks}) if _is_object(raw) else None


def _block_or_blocks(raw: msgspec.Raw, change: Change) -> bytes | None:
    several = bytes(raw).lstrip().startswith(b"[")
    return _BLOCKS(raw, change) if several else _block(raw, change)


def _result(raw: msgspec.Raw, change: Change) -> bytes | None:
    return _object(raw, change, _RESULT)


_BLOCKS: Final = _list_of(_block)
_RESULT: Final[dict[str, _Rewrite]] = {
    "content": _block_or_blocks,
    "contents": _list_of(_with_uri),
    "messages": _list_of(_message),
    "result": _result,  # of a task that is done
}
