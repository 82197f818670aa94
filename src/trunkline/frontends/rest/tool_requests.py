"""What a request about tools asks for: a JSON object in its body, or the parameters of its query.

The examples people copy send JSON with `curl -d` and no header of their own, so its Content-Type is not held against
a body. A web page could send the same without asking first: `access.py` keeps it out.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, TypeVar
from urllib.parse import parse_qsl

from trunkline.core.errors import INVALID_PARAMS, UNSUPPORTED_MEDIA, GatewayError, Problem
from trunkline.frontends.http.exchange import JSON
from trunkline.frontends.http.operator import switches
from trunkline.protocol.http1 import HttpRequest
from trunkline.protocol.jsonrpc import LESS_ROOM, BadMessage, check_text, encode, members_of
from trunkline.search.arguments import BadArgument, Discover, Execute, Provision, Unprovision, read

_AS_CURL_SENDS_IT: Final = b"application/x-www-form-urlencoded"
_TAKEN_FOR_JSON: Final = (b"", JSON, _AS_CURL_SENDS_IT)
_MAX_FIELDS: Final = 100
_TAGS: Final = "tags"
_BODY_HINT: Final = "write the body as one JSON object; `/api/openapi.json` says what it may hold"
A = TypeVar("A", Discover, Provision, Unprovision, Execute)


@contextmanager
def refusing() -> Generator[None, None, None]:
    """What cannot be meant is the caller's fault, and told as such."""
    try:
        yield
    except BadArgument as error:
        raise _refused(str(error)) from None
    except BadMessage as error:
        raise GatewayError(Problem(code=error.code, message=str(error), hint=_BODY_HINT)) from None


def in_body(request: HttpRequest, shape: type[A]) -> A:
    """Raises GatewayError."""
    switches(request)
    if _media_type(request.headers.get(b"content-type", b"")) not in _TAKEN_FOR_JSON:
        message = "Content-Type must be `application/json`"
        raise GatewayError(Problem(code=UNSUPPORTED_MEDIA, message=message, hint="it may be left out"))
    with refusing():
        _check_object(request.body)
        return read(request.body, shape)


def _check_object(body: bytes) -> None:
    """One object, and no member of it twice."""
    if not body.strip():
        raise GatewayError(Problem(code=INVALID_PARAMS, message="The body is empty", hint=_BODY_HINT))
    check_text(body)
    with LESS_ROOM:
        members_of(body, "The body")


def in_query(request: HttpRequest) -> Discover:
    """Raises GatewayError. `tags` may come several times, or with commas."""
    fields: dict[str, object] = {}
    tags: list[str] = []
    for name, value in _fields(request):
        if name == _TAGS:
            tags += [tag.strip() for tag in value.split(",") if tag.strip()]
        elif name in fields:
            raise _refused(f"`{name[:100]}` comes more than once")
        else:
            fields[name] = value
    with refusing():
        return read(encode({**fields, _TAGS: tags} if tags else fields), Discover)


def _fields(request: HttpRequest) -> list[tuple[str, str]]:
    try:
        return parse_qsl(request.query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise _refused("The query has too many parameters") from None


def _refused(message: str) -> GatewayError:
    return GatewayError(Problem(code=INVALID_PARAMS, message=message))


@lru_cache(maxsize=128)
def _media_type(content_type: bytes) -> bytes:
    return content_type.split(b";", 1)[0].strip().lower()
