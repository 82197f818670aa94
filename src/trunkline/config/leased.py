"""Services that register themselves while the gateway runs: one JSON object, read like a source of `kind: service`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from trunkline.config.added import request_table
from trunkline.config.reader import Reader
from trunkline.config.report import Invalid, Report
from trunkline.config.section import read_section
from trunkline.config.shapes import Seconds, Text
from trunkline.config.sources import ONE_DAY_S, SourceSection
from trunkline.config.tree import Entry, Items, Node, Scalar, Table
from trunkline.core.errors import BAD_VALUE, SERVER_NOT_VALID, GatewayError, Problem
from trunkline.core.names import RESERVED_SOURCE, is_source_name

LEASE_S: Final = 60.0
_BODY: Final = "request"
_LEASE: Final = "lease"
_TOKEN: Final = "token"
_EXAMPLE: Final = '{"endpoint": "http://10.0.0.7:8090", "lease": 60}'
_OWN: Final = (_LEASE, _TOKEN)


class Leased(NamedTuple):
    section: SourceSection
    lease_s: float


def read_leased(name: str, body: bytes, load_section: Callable[[], type[SourceSection]]) -> Leased:
    """A service from `{"endpoint", "tools"?, "token"?, "lease"?, …}`. Raises GatewayError, with every fault in it.

    Nothing of our environment is put into it: a reference like `${NAME}` could carry a secret to any address.
    """
    if not is_source_name(name) or name == RESERVED_SOURCE:
        message = "A service's id has letters, digits, `_` and `-`, and is not `trunkline`"
        raise GatewayError(Problem(code=SERVER_NOT_VALID, message=message))
    report = Report(_BODY)
    reader = Reader(report, {}, Path("/"), strict=True)
    try:
        return _read(name, request_table(body, report, _EXAMPLE), reader, load_section())
    except Invalid:
        problems = report.in_file_order()
        message = problems[0].message if problems else "The service's description is not valid"
        hint = problems[0].hint if problems else ""
        raise GatewayError(Problem(code=SERVER_NOT_VALID, message=message, hint=hint), problems) from None


def _read(name: str, table: Table, reader: Reader, kind: type[SourceSection]) -> Leased:
    lease = table.get(_LEASE)
    lease_s = LEASE_S if lease is None else Seconds(maximum=ONE_DAY_S).read(lease, reader)
    entries = [_as_in_a_file(entry) for entry in table.entries if entry.key.text not in _OWN]
    token = table.get(_TOKEN)
    if token is not None:
        if table.get("tokens") is not None:
            raise reader.error(
                BAD_VALUE, token, "`token` and `tokens` are both given", "`token` is short for `tokens: {*: …}`"
            )
        Text().read(token, reader)
        entries.append(_for_everybody(token))
    presets = {"prefix": kind.default_prefix(name)}
    section = read_section(kind, Table(table.span, entries), reader, presets=presets)
    if reader.report.failed:
        raise Invalid
    return Leased(section, lease_s)


def _as_in_a_file(entry: Entry) -> Entry:
    """`tools` is a list of definitions to whoever registers, and a choice among them in a file."""
    if entry.key.text == "tools" and isinstance(entry.value, Items):
        return Entry(Scalar(entry.key.span, "text", "declare"), entry.value)
    return entry


def _for_everybody(token: Node) -> Entry:
    tokens = Table(token.span, [Entry(Scalar(token.span, "text", "*"), token)])
    return Entry(Scalar(token.span, "text", "tokens"), tokens)
