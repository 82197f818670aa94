"""Text with references to inputs and outputs of states: `{{.inputs.NAME}}` and `{{.states.NAME.Output}}`.

As in AWF, the first dot is optional; as in Go's templates, `{{"{{"}}` stands for two braces, and `}}` by itself is
plain text. `{{.raw.inputs.NAME}}` is for shell commands, where values are quoted otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

_OPEN: Final = "{{"
_CLOSE: Final = "}}"
_BRACES: Final = '"{{"'
_REFERENCE: Final = re.compile(
    r"(?:(?P<raw>\.raw)?\.)?(?:inputs\.(?P<input>[^\s.{}]+)|states\.(?P<state>[^\s.{}]+)\.Output)\Z"
)
_NEARLY: Final = re.compile(
    r"-?\s*\.?(?:(?P<inputs>inputs?)\.(?P<input>[^\s.{}]+)|(?P<states>states?|steps?)\.(?P<state>[^\s.{}]+)\.output)\s*-?\Z",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Reference:
    kind: Literal["inputs", "states"]
    name: str
    raw: bool = field(default=False, kw_only=True)

    def __str__(self) -> str:
        output = ".Output" if self.kind == "states" else ""
        return f"{{{{{'.raw' if self.raw else ''}.{self.kind}.{self.name}{output}}}}}"


@dataclass(frozen=True, slots=True)
class Template:
    """Text and references, in order."""

    parts: tuple[str | Reference, ...]

    def render(self, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
        """The text with all values inserted. The output of a state that has not run is empty."""
        parts: list[str] = []
        for part in self.parts:
            if isinstance(part, str):
                parts.append(part)
            else:
                parts.append(inputs[part.name] if part.kind == "inputs" else outputs.get(part.name, ""))
        return "".join(parts)

    def references(self) -> tuple[Reference, ...]:
        return tuple(part for part in self.parts if isinstance(part, Reference))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunValues:
    """What templates and conditions refer to: the inputs of a run, and the outputs and exit codes of its states so
    far."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str] = field(default_factory=dict[str, str])
    exit_codes: Mapping[str, int] = field(default_factory=dict[str, int])

    def of(self, template: Template | None) -> str:
        """The rendered text; empty if there is no template."""
        return "" if template is None else template.render(self.inputs, self.outputs)


class TemplateProblem(NamedTuple):
    """Something in braces that is no reference, and what may be meant by it."""

    written: str
    meant: str = ""


def parse_template(text: str) -> tuple[Template, tuple[TemplateProblem, ...]]:
    """The template, and everything in braces that is no reference."""
    parts: list[str | Reference] = []
    faults: list[TemplateProblem] = []
    plain, at = "", 0
    while (start := text.find(_OPEN, at)) >= 0:
        plain += text[at:start]
        end = text.find(_CLOSE, start + len(_OPEN))
        written = text[start:] if end < 0 else text[start : end + len(_CLOSE)]
        at = start + len(written)
        found = _meaning(written)
        if isinstance(found, TemplateProblem):
            faults.append(found)
        elif isinstance(found, str):
            plain += found
        else:
            parts += [plain, found] if plain else [found]
            plain = ""
    plain += text[at:]
    return Template((*parts, plain) if plain else tuple(parts)), tuple(faults)


def _meaning(written: str) -> str | Reference | TemplateProblem:
    if not written.endswith(_CLOSE):
        return TemplateProblem(written.partition("\n")[0], "")
    body = written[len(_OPEN) : -len(_CLOSE)].strip()
    if body == _BRACES:
        return _OPEN
    match = _REFERENCE.match(body)
    if match is None:
        near = _NEARLY.match(body)
        name = near and (near["input"] or near["state"])
        meant = near and name and str(Reference("inputs" if near["inputs"] else "states", name))
        return TemplateProblem(written, meant or "")
    raw = match["raw"] is not None
    kind = "inputs" if match["input"] else "states"
    return Reference(kind, match["input"] or match["state"], raw=raw)
