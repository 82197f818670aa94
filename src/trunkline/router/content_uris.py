"""The URIs of resources inside results: links and embedded resources of tools and prompts, contents of a reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from trunkline.protocol.jsonrpc import BadMessage, encode, encode_members, members_of

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
