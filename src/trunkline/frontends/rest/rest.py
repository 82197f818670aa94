"""One request on its way to a route other than `/mcp`, and the JSON such routes answer with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from trunkline.core.errors import Problem
from trunkline.frontends.http.exchange import HttpExchange
from trunkline.protocol.http1 import HttpRequest
from trunkline.protocol.jsonrpc import encode, encode_error, error_message

API: Final = "/api/"
NO_STORE: Final = (b"cache-control", b"no-store")


class Visit(NamedTuple):
    """A request that was let in. `names` are the `{name}` parts of its path, decoded."""

    exchange: HttpExchange
    request: HttpRequest
    principal: str
    names: Mapping[str, str]

    def answer(self, status: int, document: Mapping[str, object]) -> None:
        self.exchange.add_header(*NO_STORE)
        self.exchange.respond(status, encode(document))


Handler = Callable[[Visit], None]


def problem_document(problem: Problem, details: Iterable[Problem] = ()) -> dict[str, object]:
    """`problems` are the single faults where one problem stands for several."""
    document: dict[str, object] = {"detail": problem.message, "code": problem.code.id}
    if problem.hint:
        document["hint"] = problem.hint
    problems = [_detail(each) for each in details]
    if problems:
        document["problems"] = problems
    return document


def unread_body(target: bytes, problem: Problem) -> bytes:
    """For a request that could not be read, and so never came to its route: in the words of where it was going."""
    if target.startswith(API.encode()):
        return encode(problem_document(problem))
    return error_message(b"null", encode_error(problem))


def _detail(problem: Problem) -> dict[str, object]:
    document = problem_document(problem) | {"severity": problem.severity}
    if problem.where:
        document["where"] = problem.where
    return document
