"""The MCP server behind every frontend: dispatches each method of each era to its handler."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from trunkline.core.call import PROGRESS
from trunkline.core.errors import CANCELLED as CALL_CANCELLED
from trunkline.core.errors import UNKNOWN_METHOD, Problem
from trunkline.core.signing import TokenSigner
from trunkline.frontends.mcp.calls import RoutedCall
from trunkline.frontends.mcp.clients import ClientSession, InFlightCalls, StatelessClients
from trunkline.frontends.mcp.initialize import Initializer
from trunkline.frontends.mcp.listen import ListenStreams
from trunkline.frontends.mcp.lists import ListHandler, VisibleLists
from trunkline.frontends.mcp.notifications import set_level
from trunkline.frontends.mcp.notifier import ListChangeNotifier
from trunkline.frontends.mcp.requests import RequestContext, Responder, own_result, refuse
from trunkline.frontends.mcp.resource_subscriptions import ResourceSubscriptions
from trunkline.frontends.mcp.server_requests import ServerRequestRules
from trunkline.frontends.mcp.suspended_calls import SuspendedCalls
from trunkline.protocol.jsonrpc import BadMessage, Members, Message, members_of
from trunkline.protocol.mcp import methods
from trunkline.protocol.mcp.methods import TOOLS_CALL
from trunkline.protocol.mcp.modern import RequestRefused, check_meta, check_version
from trunkline.protocol.mcp.notifications import cancelled_id
from trunkline.router.router import Router
from trunkline.runtime.safe_callbacks import call_safely
from trunkline.search.discovery import Discovery

_LISTS: Final = (methods.TOOLS_LIST, methods.PROMPTS_LIST, methods.RESOURCES_LIST, methods.RESOURCES_TEMPLATES_LIST)
_ROUTED: Final = (
    methods.PROMPTS_GET,
    methods.RESOURCES_READ,
    methods.COMPLETION_COMPLETE,
    methods.TASKS_GET,
    methods.TASKS_UPDATE,
    methods.TASKS_CANCEL,
)
Handler = Callable[[RoutedCall], None]


class McpServer:
    def __init__(
        self,
        router: Router,
        discovery: Discovery,
        *,
        max_calls_per_client: int,
        max_calls: int = 4096,
        server_request_timeout_s: float = 600.0,
    ) -> None:
        """`max_calls` bounds all clients without a session together."""
        self.router = router
        self.max_calls = max_calls_per_client
        self.sessions: set[ClientSession] = set()
        self.rules = ServerRequestRules(server_request_timeout_s, lambda: len(router.registry.servers()) > 1)
        self.listen_streams = ListenStreams(router, self.rules.names_servers)
        self.subscriptions = ResourceSubscriptions(router)
        self.suspended_calls = SuspendedCalls(TokenSigner(), self.rules)
        visible = VisibleLists(router, discovery.listing)
        self.notifier = ListChangeNotifier(router, visible, self.sessions, self.listen_streams)
        discovery.provisioning.on_change.append(self.notifier.list_changed)
        self._initializer = Initializer(router, discovery.listing)
        self._lists = ListHandler(router, visible, TokenSigner())
        self._stateless = StatelessClients(max_calls)
        common: dict[str, Handler] = dict.fromkeys(_LISTS, self._lists.handle)
        common |= dict.fromkeys(_ROUTED, self._route)
        self._legacy: Final[dict[str, Handler]] = {
            **common,
            methods.TASKS_RESULT: self._route,
            methods.INITIALIZE: self._initialize,
            methods.PING: lambda context: context.responder.result(own_result(b"{}")),
            methods.LOGGING_SET_LEVEL: lambda context: set_level(router, context),
            methods.RESOURCES_SUBSCRIBE: self.subscriptions.subscribe,
            methods.RESOURCES_UNSUBSCRIBE: self.subscriptions.unsubscribe,
        }
        self._modern: Final[dict[str, Handler]] = {
            **common,
            methods.SERVER_DISCOVER: self._initializer.discover,
            methods.SUBSCRIPTIONS_LISTEN: self.listen_streams.open,
        }

    # -- the legacy era -------------------------------------------------------------------------------------------

    def legacy_request(self, session: ClientSession, message: Message, responder: Responder) -> None:
        """Handle a request of a session."""
        try:
            params = {} if message.params is None else members_of(message.params, "`params`", message.id_json)
            meta = params.get("_meta")
            members = None if meta is None else members_of(meta, "`_meta`", message.id_json)
            caller, calls = session.caller, session.calls
            call = RoutedCall(
                message, params, members, responder, caller, calls, message.id, session, self.suspended_calls
            )
            if message.method == TOOLS_CALL:
                call.call_tool(self.router)
            else:
                self._serve(call, self._legacy)
        except BadMessage as error:
            refuse(responder, error.problem)

    def _initialize(self, context: RequestContext) -> None:
        session = context.session
        if session is not None and self._initializer.initialize(session, context):
            self.sessions.add(session)
            session.server_requests.begin(self.rules)
            self.notifier.add_session(session)
            if session.caller.session is not None:
                self.router.clients.add(session.caller.session, session)

    def legacy_other(self, session: ClientSession, message: Message) -> None:
        """Handle a notification of a session, or its response to a server's request."""
        if message.method is None:
            session.server_requests.handle_response(message)
            return
        request_id = cancelled_id(message)
        if request_id is not None:
            session.calls.cancel(request_id, "the client cancelled it")
        elif message.method == PROGRESS:
            session.server_requests.handle_progress(message)
        elif message.method == methods.NOTIFICATIONS_ROOTS_LIST_CHANGED:
            self.router.notify(session.caller, message.method, b"{}" if message.params is None else message.params)

    def end(self, session: ClientSession, why: str) -> None:
        """End a session, and with it everything that was held for it."""
        self.sessions.discard(session)
        session.push = None
        self.subscriptions.forget(session, why)
        session.calls.cancel_all(why)
        session.server_requests.close()  # after the calls: a refusal must not resume one of them
        if session.caller.session is not None:
            self.router.clients.remove(session.caller.session)
            self.router.registry.forget(session.caller.session)

    # -- the modern era -------------------------------------------------------------------------------------------

    def modern_request(
        self,
        message: Message,
        responder: Responder,
        principal: str,
        key: Hashable,
        check: Callable[[str, str, Members], None] | None = None,
        calls: InFlightCalls | None = None,
    ) -> None:
        """Handle a request that describes itself.

        `key` names it among those in flight; `check` compares HTTP headers; `calls` are those of its connection, where
        that has one client only.
        """
        try:
            params = {} if message.params is None else members_of(message.params, "`params`", message.id_json)
            meta = members_of(params["_meta"], "`_meta`", message.id_json) if "_meta" in params else {}
            version = check_meta(meta)
            if check is not None:
                check(version, message.method or "", params)
            check_version(version)
            calls = self._stateless.calls_of(principal) if calls is None else calls
            caller = self._stateless.caller(principal, meta, version)
            call = RoutedCall(message, params, meta, responder, caller, calls, key, None, self.suspended_calls)
            if message.method == TOOLS_CALL:
                call.call_tool(self.router)
            else:
                self._serve(call, self._modern)
        except RequestRefused as refused:
            refuse(responder, refused.problem, dict(refused.extra) if refused.extra is not None else None)
        except BadMessage as error:
            refuse(responder, error.problem)

    def cancel_modern(self, principal: str, key: Hashable, why: str, calls: InFlightCalls | None = None) -> None:
        """End a request whose stream the client closed, or that it cancelled over stdio."""
        if not self.listen_streams.close(key, Problem(code=CALL_CANCELLED, message=why)):
            (self._stateless.calls_of(principal) if calls is None else calls).cancel(key, why)

    def calls_of(self, principal: str) -> InFlightCalls:
        """What the clients of a principal without a session have in flight; REST calls count too."""
        return self._stateless.calls_of(principal)

    def end_subscriptions(self) -> None:
        """End every `subscriptions/listen` with its result, before a frontend closes."""
        self.listen_streams.end_all()

    # -- either era -----------------------------------------------------------------------------------------------

    def _serve(self, call: RoutedCall, table: dict[str, Handler]) -> None:
        method = call.message.method or ""
        handler = table.get(method)
        if handler is None:
            refuse(call.responder, Problem(code=UNKNOWN_METHOD, message=f"Unknown method: {method}"))
        else:
            handler(call)

    def _route(self, call: RoutedCall) -> None:
        call.request(self.router)

    def close(self) -> None:
        self.notifier.close()
        for session in list(self.sessions):
            call_safely("the end of a session", self.end, session, "the gateway is shutting down")
        self._stateless.cancel_all("the gateway is shutting down")
        self.suspended_calls.close()
