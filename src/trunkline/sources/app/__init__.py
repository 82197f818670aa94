"""The kind `app`: a listener that programs connect to, and a server for each app that registers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from trunkline.config.reader import ConfigReader
from trunkline.config.section import SectionNodes, key
from trunkline.config.settings import needs_token
from trunkline.config.sources import ONE_DAY_S, SourceSection
from trunkline.config.tree import Node
from trunkline.config.value_types import Integer, JsonSchema, ListenAddress, Seconds, Text, ValueType
from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import TOKEN_REQUIRED
from trunkline.core.source import Source, SourceKind

if TYPE_CHECKING:
    from trunkline.runtime.source_context import SourceContext

_LONGEST_TOKEN: Final = 1024


def _wrong_with_token(token: str) -> str | None:
    fits = token.isprintable() and len(token) <= _LONGEST_TOKEN
    return None if fits else f"A token is one line of at most {_LONGEST_TOKEN} characters"


class PortOrSocket(ValueType[BindAddress | Path]):
    """`host:port`, or anything with a slash: the path of a Unix socket, from the file's folder."""

    _port: Final = ListenAddress()

    def read(self, node: Node, reader: ConfigReader) -> BindAddress | Path:
        text = Text(may_be_empty=False).read(node, reader)
        return reader.path(text) if "/" in text else self._port.read(node, reader)

    def schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 1}


class AppSection(SourceSection):
    """An address where apps connect."""

    kind: ClassVar[str] = "app"

    listen: BindAddress | Path = key(
        PortOrSocket(),
        default=BindAddress("127.0.0.1", 5100),
        doc="`host:port` that apps connect to, or the path of a Unix socket (with a `/` in it)",
    )
    token: str = key(
        Text(check=_wrong_with_token),
        default="",
        doc="Token that apps must present to register; empty for none",
        secret=True,
    )
    queue: int = key(Integer(minimum=1, maximum=100_000), default=256, doc="Calls that one app may have open at once")
    rate: int = key(
        Integer(minimum=0, maximum=1_000_000), default=0, doc="Calls per second for one app; 0 for no limit"
    )
    timeout: float = key(Seconds(maximum=ONE_DAY_S), default=30.0, doc="Seconds a call may take without progress")
    grace: float = key(
        Seconds(maximum=ONE_DAY_S, allow_zero=True),
        default=0.0,
        doc="Seconds an app's tools stay listed once it is gone",
    )

    @classmethod
    def check(cls, values: Mapping[str, Any], nodes: SectionNodes) -> None:
        listen, token = values.get("listen"), values.get("token")
        if isinstance(listen, BindAddress) and token is not None and needs_token(listen, token):
            message = "Listening for apps beyond this machine needs a `token`"
            hint = "set `token: ${APP_TOKEN}`, or listen on `127.0.0.1` or a Unix socket"
            nodes.reader.error(TOKEN_REQUIRED, nodes.of("listen"), message, hint)


def build(name: str, section: AppSection, context: SourceContext) -> Source:
    # imported here, so that checking a configuration loads no networking
    from trunkline.sources.app.listener import AppListener

    return AppListener(name, section, context.message_bytes, context.unfinished)


KIND = SourceKind(section=AppSection, build=build)
