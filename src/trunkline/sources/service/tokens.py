"""Which token a service is shown for a caller, and by which name it knows the caller's session."""

from __future__ import annotations

from collections.abc import Mapping

from trunkline.core.call import Caller
from trunkline.runtime.source_context import SessionTokens
from trunkline.sources.service.section import EVERYBODY


class Tokens:
    """The file's word goes before what an operator handed in, and what is closest to the caller before all else."""

    def __init__(self, configured: Mapping[str, str], handed_in: SessionTokens) -> None:
        self._configured = configured
        self._handed_in = handed_in

    def of(self, caller: Caller) -> str | None:
        for holder in (caller.session, caller.principal, EVERYBODY):
            if holder is not None:
                token = self._configured.get(holder) or self._handed_in.get(holder)
                if token:
                    return token
        return None

    @property
    def of_everybody(self) -> str | None:
        return self._configured.get(EVERYBODY) or self._handed_in.get(EVERYBODY)

    def session_id(self, caller: Caller) -> str:
        """A client's own session id would let the service act as that client, so it is not told. One that the file
        names is no secret."""
        session = caller.session
        if session is None:
            return caller.principal
        return session if session in self._configured else self._handed_in.alias(session)

    def forget(self, session: str) -> None:
        self._handed_in.drop(session)
