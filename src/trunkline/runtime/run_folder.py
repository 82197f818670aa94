"""The private folder of one agent's run: what its gateway and the agent need of files, gone with the run.

It is gone also when the gateway is killed: the supervisor, which ends the run's processes then, removes it after them.
Should both be killed at once, the next start removes it.
"""

from __future__ import annotations

from typing import Final

from trunkline.runtime.children import Children
from trunkline.runtime.private_folder import PrivateFolder
from trunkline.runtime.start_problem import start_failed

PREFIX: Final = "trunkline-r-"


class RunFolder(PrivateFolder):
    """`label` says whose it is. Raises GatewayError where none can be made."""

    def __init__(self, children: Children, label: str) -> None:
        try:
            super().__init__(PREFIX)
        except OSError as error:
            raise start_failed(label, f"no folder can be made for its run: {error}", retryable=True) from None
        self._children = children
        try:
            children.hold(self.path, label)
        except BaseException:
            super().remove()
            raise

    def remove(self) -> None:
        """With everything in it; what still uses it should have ended."""
        super().remove()
        self._children.release(self.path)
