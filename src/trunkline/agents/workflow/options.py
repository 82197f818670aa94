"""The `options` of an agent: the model, and where it is reached for providers without a program of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final
from urllib.parse import urlsplit

from trunkline.agents.workflow.document import AgentOptions
from trunkline.agents.workflow.reader import WorkflowReader, WorkflowSection
from trunkline.agents.workflow.template import Template
from trunkline.agents.workflow.value_types import (
    OPENAI_COMPATIBLE,
    ApiKeyReference,
    ApiKeyVariable,
    Number,
    TemplateText,
    WithEnvironment,
)
from trunkline.config.secrets import warn_about_secrets
from trunkline.config.section import key, read_section
from trunkline.config.sources import NOTHING
from trunkline.config.tree import Node, Table
from trunkline.config.value_types import Boolean, Integer, Text, ValueType
from trunkline.core.bind_address import is_loopback
from trunkline.core.errors import BAD_VALUE, KEY_NOT_SENT, MISSING_KEY, MODEL_KEY
from trunkline.sources.sections import McpHttpSection, wrong_with_url

_KEYS: Final = ("api_key", "api_key_env")
_HEADERS: Final[ValueType[Mapping[str, str]]] = McpHttpSection.declared["headers"].value_type


class ModelOptionsSection(WorkflowSection):
    """The options of every provider."""

    called: ClassVar[str] = "the options of this provider"

    model: Template | None = key(
        TemplateText(), default=None, doc="The model; without it the program's own choice, or `OPENAI_MODEL`"
    )
    instructions: bool = key(
        Boolean(), default=True, doc="Whether an isolated agent gets the project's `AGENTS.md` or similar file"
    )


class ModelServerSection(ModelOptionsSection):
    """The options for a model's server, of `openai_compatible` only."""

    base_url: str = key(
        WithEnvironment(Text(check=wrong_with_url), ""),
        default="",
        doc="The server's URL; without it `OPENAI_BASE_URL`, then OpenAI's own",
    )
    api_key: str = key(
        ApiKeyReference(),
        default="",
        doc="The key as `${NAME}`; without it `OPENAI_API_KEY`, if that is set and the server is OpenAI's",
        secret=True,
    )
    api_key_env: str = key(
        ApiKeyVariable(), default="", doc="The same, given as a variable name without `${}`", secret=True
    )
    headers: Mapping[str, str] = key(
        WithEnvironment(_HEADERS, NOTHING),
        default=NOTHING,
        doc="Additional headers; `${NAME}` is a variable",
        secret=True,
    )
    max_turns: int = key(
        Integer(minimum=1, maximum=10_000), default=50, doc="Maximum number of model requests in one step"
    )
    max_tokens: int | None = key(Integer(minimum=1), default=None, doc="The longest answer, in tokens")
    temperature: float | None = key(Number(maximum=2.0), default=None, doc="Sampling temperature, 0 to 2")


def read_options(node: Node | None, provider: str, at: Node, reader: WorkflowReader) -> AgentOptions:
    """Read the options of one agent. `at` is the place for reporting missing keys. Raises InvalidValue."""
    written: Node = node if node is not None else Table(at.span)
    if provider != OPENAI_COMPATIBLE:
        of_program = read_section(ModelOptionsSection, written, reader)
        return AgentOptions(model=of_program.model, instructions=of_program.instructions)
    if isinstance(written, Table):
        warn_about_secrets(Table(written.span, [e for e in written.entries if e.key.text == "headers"]), reader)
    keys = read_section(ModelServerSection, written, reader)
    environ = reader.environ
    model = keys.model or _model_of(environ, at, reader)
    base_url = keys.base_url or environ.get(URL_VARIABLE, "") or OPENAI_URL
    return AgentOptions(
        model=model,
        instructions=keys.instructions,
        base_url=base_url,
        api_key=_key_of(keys, written, base_url, at, reader),
        headers=keys.headers,
        max_turns=keys.max_turns,
        max_tokens=keys.max_tokens,
        temperature=keys.temperature,
        missing=tuple(reader.missing),
    )


def _model_of(environ: Mapping[str, str], at: Node, reader: WorkflowReader) -> Template | None:
    name = environ.get("OPENAI_MODEL", "")
    if name:
        return Template((name,))
    message = "No model is given"
    reader.warn(MISSING_KEY, at, message, "add `options: {model: …}`, or set `OPENAI_MODEL` before this is run")
    reader.add_missing(message)
    return None


def _key_of(keys: ModelServerSection, written: Node, base_url: str, at: Node, reader: WorkflowReader) -> str:
    """The key that the step names, without a substitute; else the default one, if it is for this server."""
    named = [name for name in _KEYS if isinstance(written, Table) and written.get(name) is not None]
    if len(named) > 1:
        raise reader.error(BAD_VALUE, at, "`api_key` and `api_key_env` both name the key", "leave one of them out")
    if named:
        return keys.api_key or keys.api_key_env
    headers = written.get("headers") if isinstance(written, Table) else None
    if isinstance(headers, Table) and any(entry.key.text.lower() in _CREDENTIALS for entry in headers.entries):
        return ""  # even if the variable in its value is not set
    usual = default_key(reader.environ, keys.base_url)
    if not usual:
        _warn_about_no_key(base_url, at, reader)
    return usual


def _warn_about_no_key(base_url: str, at: Node, reader: WorkflowReader) -> None:
    """Warn without a key: OpenAI needs one, and for other servers a key that is set and not sent is worth a warning."""
    if is_openai(base_url):
        message = "No key is given for OpenAI's server"
        reader.warn(MODEL_KEY, at, message, f"set `{KEY_VARIABLE}`, or name another server with `base_url`")
        reader.add_missing(message)
    elif reader.environ.get(KEY_VARIABLE) and not is_local(base_url):
        hint = "name its key with `api_key_env: NAME`; if it needs none, ignore this"
        reader.warn(KEY_NOT_SENT, at, f"`{KEY_VARIABLE}` is not sent to this server, and no key is named for it", hint)


# The default key, `OPENAI_API_KEY`, is sent only to the server that it is for.

OPENAI_URL: Final = "https://api.openai.com/v1"
URL_VARIABLE: Final = "OPENAI_BASE_URL"
KEY_VARIABLE: Final = "OPENAI_API_KEY"
_OPENAI: Final = "api.openai.com"
_CREDENTIALS: Final = frozenset({"authorization", "api-key", "x-api-key", "x-goog-api-key"})


def is_openai(base_url: str) -> bool:
    """Whether this is OpenAI's own server, or one of its regions, over TLS."""
    scheme, host = _scheme_and_host(base_url)
    return scheme == "https" and (host == _OPENAI or host.endswith(f".{_OPENAI}"))


def default_key(environ: Mapping[str, str], written_url: str) -> str:
    """`OPENAI_API_KEY`, if the server is OpenAI's, or the one in `OPENAI_BASE_URL`: who sets both means them
    together."""
    key, paired = environ.get(KEY_VARIABLE, ""), environ.get(URL_VARIABLE, "")
    if written_url or not paired:
        return key if is_openai(written_url or OPENAI_URL) else ""
    return key if (_scheme_and_host(paired)[0] == "https" or is_local(paired)) else ""


def is_local(base_url: str) -> bool:
    """Whether the server is on this machine, where most need no key."""
    return is_loopback(_scheme_and_host(base_url)[1])


def _scheme_and_host(base_url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(base_url.strip())
        return parts.scheme, parts.hostname or ""
    except ValueError:
        return "", ""
