"""What has to be changed in a server's answer before its caller sees it: URIs that lead elsewhere, ids of tasks.

Hardly any call needs it. One that does has its `reply` replaced, so that the others pay nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trunkline.core.call import Call, Json, RemoteError, Result
from trunkline.core.question import Question
from trunkline.router.content_uris import map_error_uri, may_have_uris
from trunkline.router.links import Links
from trunkline.router.tasks import Tasks, may_have_task_ids

_NOT_RENAMED: Final[Mapping[str, str]] = {}


class Answers:
    def __init__(self, links: Links, tasks: Tasks) -> None:
        self._links = links
        self._tasks = tasks

    def adapt(
        self, call: Call, *, links: bool = False, tasks: bool = False, renamed: Mapping[str, str] = _NOT_RENAMED
    ) -> None:
        """Adapt the answer to this call when it comes; with `tasks`, what its server says and asks meanwhile too."""
        reply = call.reply

        def adapted(call: Call) -> None:
            outcome = call.outcome
            if isinstance(outcome, Result):
                raw = self._adapted(call, outcome, links, tasks, renamed)
                if raw is not outcome.raw:
                    call.outcome = type(outcome)(raw, bytes(raw))
            elif renamed and isinstance(outcome, RemoteError):
                call.outcome = RemoteError(map_error_uri(bytes(outcome.raw), lambda uri: renamed.get(uri, uri)))
            reply(call)

        call.reply = adapted
        if tasks:
            self._adapt_meanwhile(call)

    def _adapt_meanwhile(self, call: Call) -> None:
        notice, ask = call.on_notice, call.on_question

        def noticed(method: str, params: Json) -> None:
            if notice is not None:
                notice(method, self._tasks.to_caller(call.caller, call.source, params))

        def asked(question: Question) -> None:
            question.params = self._tasks.to_caller(call.caller, call.source, question.params)
            if ask is not None:
                ask(question)

        call.on_notice = noticed if notice is not None else None
        call.on_question = asked if ask is not None else None

    def _adapted(self, call: Call, outcome: Result, links: bool, tasks: bool, renamed: Mapping[str, str]) -> Json:
        raw = outcome.raw
        message = bytes(raw) if outcome.message is None else outcome.message
        if tasks and may_have_task_ids(message):
            raw = self._tasks.to_caller(call.caller, call.source, raw)
        if (links or renamed) and may_have_uris(message):
            text = bytes(raw)
            learned = self._links.learn(call.caller, call.source, text, renamed)
            raw = raw if learned is text else learned
        return raw
