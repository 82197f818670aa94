"""`options` of an agent: the model, and where it is asked for providers without a program of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from trunkline.config.secrets import warn_about_secrets
from trunkline.config.section import key, read_section
from trunkline.config.shapes import Integer, JsonSchema, Shape, Text
from trunkline.config.sources import NOTHING
from trunkline.config.tree import Node, Scalar, Table
from trunkline.core.errors import BAD_VALUE, MISSING_KEY, MODEL_KEY
from trunkline.sources.sections import McpHttpSection, wrong_with_url
from trunkline.workflow.document import Options
from trunkline.workflow.reader import WorkflowReader
from trunkline.workflow.shapes import OPENAI_COMPATIBLE, FromEnvironment, KeyReference, TemplateText
from trunkline.workflow.template import Template
from trunkline.workflow.unsupported import WorkflowSection

OPENAI_URL: Final = "https://api.openai.com/v1"
_HOTTEST: Final = 2.0
_HEADERS: Final[Shape[Mapping[str, str]]] = McpHttpSection.declared["headers"].shape


class Temperature(Shape[float]):
    def read(self, node: Node, reader: Any) -> float:
        if not isinstance(node, Scalar) or node.kind != "number":
            raise reader.wrong_type(node, "a number")
        value = float(reader.text(node))
        if not 0 <= value <= _HOTTEST:
            raise reader.error(BAD_VALUE, node, f"The temperature must be from 0 to {_HOTTEST:.0f}")
        return value

    def schema(self) -> JsonSchema:
        return {"type": "number", "minimum": 0, "maximum": _HOTTEST}


class ModelKeys(WorkflowSection):
    """What every provider takes."""

    called: ClassVar[str] = "the options of this provider"

    model: Template | None = key(
        TemplateText(), default=None, doc="The model; without it the program's own choice, or `OPENAI_MODEL`"
    )


class ServerKeys(ModelKeys):
    """What a model's server is asked with; for `openai_compatible` alone."""

    base_url: str = key(
        FromEnvironment(Text(check=wrong_with_url), ""),
        default="",
        doc="Where the server answers; without it `OPENAI_BASE_URL`, then OpenAI's own",
    )
    api_key: str = key(
        KeyReference(), default="", doc="The key as `${NAME}`; without it `OPENAI_API_KEY`, if that is set", secret=True
    )
    headers: Mapping[str, str] = key(
        FromEnvironment(_HEADERS, NOTHING), default=NOTHING, doc="Further headers; `${NAME}` is a variable", secret=True
    )
    max_turns: int = key(
        Integer(minimum=1, maximum=10_000), default=50, doc="How often the model may be asked in one step"
    )
    max_tokens: int | None = key(Integer(minimum=1), default=None, doc="The longest answer, in tokens")
    temperature: float | None = key(Temperature(), default=None, doc="How freely the model chooses its words, 0 to 2")


def read_options(node: Node | None, provider: str, at: Node, reader: WorkflowReader) -> Options:
    """The options of one agent. `at` is where something is reported that is not written; raises Invalid."""
    written: Node = node if node is not None else Table(at.span)
    if provider != OPENAI_COMPATIBLE:
        return Options(model=read_section(ModelKeys, written, reader).model)
    if isinstance(written, Table):
        warn_about_secrets(Table(written.span, [e for e in written.entries if e.key.text == "headers"]), reader)
    keys = read_section(ServerKeys, written, reader)
    environ = reader.environ
    model = keys.model or _model_of(environ, at, reader)
    base_url = keys.base_url or environ.get("OPENAI_BASE_URL", "") or OPENAI_URL
    api_key = keys.api_key
    if not isinstance(written, Table) or written.get("api_key") is None:
        api_key = _usual_key(environ, base_url, at, reader)
    return Options(
        model=model,
        base_url=base_url,
        api_key=api_key,
        headers=keys.headers,
        max_turns=keys.max_turns,
        max_tokens=keys.max_tokens,
        temperature=keys.temperature,
        lacking=tuple(reader.lacking),
    )


def _model_of(environ: Mapping[str, str], at: Node, reader: WorkflowReader) -> Template | None:
    name = environ.get("OPENAI_MODEL", "")
    if name:
        return Template((name,))
    message = "No model is given"
    reader.warn(MISSING_KEY, at, message, "add `options: {model: …}`, or set `OPENAI_MODEL` before this is run")
    reader.lacks(message)
    return None


def _usual_key(environ: Mapping[str, str], base_url: str, at: Node, reader: WorkflowReader) -> str:
    """A server of one's own may want no key; OpenAI's does."""
    usual = environ.get("OPENAI_API_KEY", "")
    if not usual and base_url == OPENAI_URL:
        message = "No key is given for OpenAI's server"
        reader.warn(MODEL_KEY, at, message, "set `OPENAI_API_KEY`, or name another server with `base_url`")
        reader.lacks(message)
    return usual
