"""What a plugin gave for a call, as an MCP result."""

from __future__ import annotations

from typing import Final

import msgspec

from trunkline.protocol.jsonrpc import REDUCED_STACK, BadMessage, check_text, encode, encode_members, single_line
from trunkline.sdk.plugin_v1 import OperationResult

_decode_raw: Final = msgspec.json.Decoder(msgspec.Raw).decode
_UNEXPLAINED: Final = "the plugin says that the operation failed, and not why"


class BadData(Exception):
    """A value in the answer is not the JSON that it has to be."""


def result_from(done: OperationResult) -> bytes:
    """`output` is what people read and `data` what programs do; without an `output`, people get the data as text."""
    data = b"" if not done.data else encode_members({name: _value(name, raw) for name, raw in done.data.items()})
    if done.success:
        texts = [done.output or data.decode()]
    else:
        texts = [text for text in (done.error, done.output) if text] or [_UNEXPLAINED]
    blocks = b",".join([b'{"type":"text","text":%b}' % encode(text) for text in texts])
    result = b'{"content":[%b]' % blocks
    if data:
        result += b',"structuredContent":%b' % data
    return result + (b"}" if done.success else b',"isError":true}')


def _value(name: str, raw: bytes) -> bytes:
    """One JSON value, checked by itself: spliced in unchecked it could end what it stands in."""
    try:
        check_text(raw)
        with REDUCED_STACK:
            return single_line(_decode_raw(raw))
    except (BadMessage, msgspec.MsgspecError) as error:
        raise BadData(f"the value `{name[:100]}` of its answer is not valid JSON: {error}") from None
    except RecursionError:
        raise BadData(f"the value `{name[:100]}` of its answer is nested too deeply") from None
