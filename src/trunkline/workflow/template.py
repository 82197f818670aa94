"""Text with references to inputs and to outputs of states: `{{.inputs.NAME}}` and `{{.states.NAME.Output}}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Reference:
    kind: Literal["inputs", "states"]
    name: str


@dataclass(frozen=True, slots=True)
class Template:
    """Text and references in turn, in the order they are written."""

    parts: tuple[str | Reference, ...]

    def render(self, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
        """The text with everything in its place. What a state did not say yet is empty."""
        return "".join(part if isinstance(part, str) else self._value(part, inputs, outputs) for part in self.parts)

    @staticmethod
    def _value(reference: Reference, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
        return inputs[reference.name] if reference.kind == "inputs" else outputs.get(reference.name, "")
