"""The private folder that a plugin puts its socket into."""

from __future__ import annotations

from typing import Final

from trunkline.runtime.children import start_failed
from trunkline.runtime.temporary_folders import PrivateFolder

PREFIX: Final = "trunkline-p-"


class SocketFolder(PrivateFolder):
    """Raises GatewayError where none can be made."""

    def __init__(self, name: str) -> None:
        try:
            super().__init__(PREFIX)
        except OSError as error:
            raise start_failed(name, f"no folder can be made for its socket: {error}", retryable=True) from None
