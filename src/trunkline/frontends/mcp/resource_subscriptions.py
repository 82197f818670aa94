"""`resources/subscribe` of legacy clients: what each session watches until it unsubscribes or ends."""

from __future__ import annotations

from functools import partial
from typing import Final

from trunkline.core.call import Failure, Json, Outcome, RemoteError, Result
from trunkline.core.errors import CANCELLED, CLIENT_LIMIT, DEADLINE, INVALID_PARAMS, Problem
from trunkline.frontends.mcp.calls import legacy_error
from trunkline.frontends.mcp.clients import ClientSession
from trunkline.frontends.mcp.listen import MAX_CHARACTERS
from trunkline.frontends.mcp.requests import RequestContext, Responder, own_result, refuse, text_or_none
from trunkline.protocol.jsonrpc import BadMessage
from trunkline.protocol.mcp.notifications import legacy_update
from trunkline.protocol.mcp.translation import error_for_legacy
from trunkline.router.router import Router
from trunkline.router.subscriptions import ResourceSubscription
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.safe_callbacks import call_safely

MAX_PER_CLIENT: Final = 1000
_SETTLE_S: Final = 30.0
_DONE: Final = own_result(b"{}")


class ClientSubscription:
    """One resource for one client. A second request for it gets the same response."""

    def __init__(self, session: ClientSession, uri: str) -> None:
        self.uri = uri
        self.accepted = False
        self.watching: ResourceSubscription | None = None
        self.timer: Deadline | None = None
        self._session = session
        self._waiting: list[Responder] = []
        self._closed = False

    @property
    def is_lost(self) -> bool:
        """Whether its server was removed since."""
        return self.watching is not None and self.watching.closed

    def respond(self, responder: Responder) -> None:
        """Respond to a request for it, now or once its server has answered."""
        if self.accepted:
            responder.result(_DONE)
        else:
            self._waiting.append(responder)

    def settle(self, outcome: Outcome) -> None:
        self.stop_timer()
        self.accepted = isinstance(outcome, Result)
        waiting, self._waiting = self._waiting, []
        for responder in waiting:
            _respond(responder, outcome)

    def updated(self, params: Json) -> None:
        push = self._session.push
        if self._closed or push is None:
            return
        try:
            push(legacy_update(params))
        except (BadMessage, RecursionError):
            return

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def close(self) -> None:
        self._closed = True
        self.stop_timer()
        if self.watching is not None:
            self.watching.close()


class ResourceSubscriptions:
    """The subscriptions of all sessions."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._by_session: dict[ClientSession, dict[str, ClientSubscription]] = {}

    def subscribe(self, context: RequestContext) -> None:
        session, uri = context.session, _uri_of(context)
        if session is None or uri is None:
            return
        theirs = self._by_session.setdefault(session, {})
        known = theirs.get(uri)
        if known is not None and not known.is_lost:
            known.respond(context.responder)
        elif known is None and len(theirs) >= MAX_PER_CLIENT:
            message = f"More than {MAX_PER_CLIENT} resources are subscribed to"
            refuse(context.responder, Problem(code=CLIENT_LIMIT, message=message, hint="unsubscribe from some"))
        else:
            self._begin(session, theirs, uri, context)

    def _begin(
        self, session: ClientSession, theirs: dict[str, ClientSubscription], uri: str, context: RequestContext
    ) -> None:
        subscription = theirs[uri] = ClientSubscription(session, uri)
        subscription.respond(context.responder)
        settled = partial(self._settled, session, subscription)
        message = f"No answer to the subscription of `{uri}` within {_SETTLE_S:g} seconds"
        subscription.timer = Deadline(_SETTLE_S, partial(settled, Failure(Problem(code=DEADLINE, message=message))))
        subscription.watching = self._router.subscribe(session.caller, uri, subscription.updated, settled)
        if theirs.get(uri) is not subscription:  # it was refused at once
            subscription.close()

    def _settled(self, session: ClientSession, subscription: ClientSubscription, outcome: Outcome) -> None:
        theirs = self._by_session.get(session, {})
        if not isinstance(outcome, Result) and theirs.get(subscription.uri) is subscription:
            del theirs[subscription.uri]
            subscription.close()
        subscription.settle(outcome)

    def unsubscribe(self, context: RequestContext) -> None:
        uri = _uri_of(context)
        if uri is None:
            return
        theirs = self._by_session.get(context.session, {}) if context.session is not None else {}
        subscription = theirs.pop(uri, None)
        if subscription is not None:
            subscription.close()
            subscription.settle(_DONE)
        context.responder.result(_DONE)

    def forget(self, session: ClientSession, why: str) -> None:
        """End the subscriptions of a session; requests that still wait are answered all the same."""
        gone = Failure(Problem(code=CANCELLED, message=f"Subscription cancelled: {why}"))
        for subscription in self._by_session.pop(session, {}).values():
            call_safely("the end of a subscription", subscription.close)
            call_safely("the end of a subscription", subscription.settle, gone)


def _uri_of(context: RequestContext) -> str | None:
    uri = text_or_none(context.params, "uri")
    if uri is None or len(uri) > MAX_CHARACTERS:
        message = f"`params.uri` must be a string of at most {MAX_CHARACTERS} characters"
        refuse(context.responder, Problem(code=INVALID_PARAMS, message=message))
        return None
    return uri


def _respond(responder: Responder, outcome: Outcome) -> None:
    if isinstance(outcome, Failure) and outcome.problem.code is CANCELLED:
        responder.cancelled(outcome.problem)
    elif isinstance(outcome, Failure):
        responder.error(legacy_error(outcome.problem), outcome.problem)
    elif isinstance(outcome, RemoteError):
        responder.error(error_for_legacy(outcome.raw, reading=True), None)
    else:
        responder.result(_DONE)
