"""Which key the server of a model is sent where its step names none: `OPENAI_API_KEY`, but only to whom it is for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from trunkline.core.listen_address import is_loopback

OPENAI_URL: Final = "https://api.openai.com/v1"
BASE_URL: Final = "OPENAI_BASE_URL"
USUAL_KEY: Final = "OPENAI_API_KEY"
_OPENAI: Final = "api.openai.com"
_CREDENTIALS: Final = frozenset({"authorization", "api-key", "x-api-key", "x-goog-api-key"})


def is_openai(base_url: str) -> bool:
    """Whether this is OpenAI's own server, or one of its regions, and nobody can listen on the way."""
    scheme, host = _scheme_and_host(base_url)
    return scheme == "https" and (host == _OPENAI or host.endswith(f".{_OPENAI}"))


def usual_key(environ: Mapping[str, str], written_url: str) -> str:
    """`OPENAI_API_KEY`, where the server is OpenAI's. Where the step names none, it is the one in `OPENAI_BASE_URL`:
    whoever set both meant them for each other."""
    key, paired = environ.get(USUAL_KEY, ""), environ.get(BASE_URL, "")
    if written_url or not paired:
        return key if is_openai(written_url or OPENAI_URL) else ""
    return key if _cannot_be_read(paired) else ""


def stays_here(base_url: str) -> bool:
    """Whether the server is on this machine, where most want no key."""
    return is_loopback(_scheme_and_host(base_url)[1])


def carry_credential(headers: Iterable[str]) -> bool:
    return any(name.lower() in _CREDENTIALS for name in headers)


def _cannot_be_read(base_url: str) -> bool:
    return _scheme_and_host(base_url)[0] == "https" or stays_here(base_url)


def _scheme_and_host(base_url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(base_url.strip())
        return parts.scheme, parts.hostname or ""
    except ValueError:
        return "", ""
