"""Groups of keys of a workflow: what is not among them is refused by its name, never passed over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from trunkline.config.reader import Reader
from trunkline.config.report import Invalid
from trunkline.config.section import Section
from trunkline.config.suggest import hint_for, listed, nearest
from trunkline.config.tree import Scalar
from trunkline.core.errors import PROXY_UNKNOWN_KEY, WORKFLOW_METADATA, WORKFLOW_UNSUPPORTED

METADATA: Final = frozenset(
    (
        *("author", "authors", "category", "comment", "comments", "created", "homepage", "icon", "keywords", "labels"),
        *("license", "maintainer", "maintainers", "metadata", "note", "notes", "repository", "tags", "title"),
        *("updated",),
    )
)
"""Keys that say something to people and change nothing about a run. So do those that begin with `x-`."""
FOR_CALLERS: Final = frozenset({"outputs"})
"""Keys for workflows that call this one, which none does."""


class WorkflowSection(Section):
    """`called` is what the group is in messages; `elsewhere` says where keys belong that do not belong here. With
    `has_metadata`, keys for people may stand in it; `unused` are others that change nothing here."""

    called: ClassVar[str] = "a workflow"
    elsewhere: ClassVar[Mapping[str, str]] = {}
    has_metadata: ClassVar[bool] = False
    unused: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def passes_over(cls, unknown: Scalar, reader: Reader) -> bool:
        if unknown.text in cls.unused:
            reader.warn(WORKFLOW_METADATA, unknown, f"`{unknown.text}` is for workflows that call this one: not used")
            return True
        if not cls.has_metadata or not (unknown.text in METADATA or unknown.text.startswith("x-")):
            return False
        reader.warn(WORKFLOW_METADATA, unknown, f"`{unknown.text}` is for people, and is not used")
        return True

    @classmethod
    def refuse(cls, unknown: Scalar, reader: Reader, known: Sequence[str]) -> Invalid:
        name = unknown.text
        hint = cls.elsewhere.get(name, "") or hint_for(name, known, "keys here")
        return reader.error(WORKFLOW_UNSUPPORTED, unknown, f"`{name}` is not supported in {cls.called}", hint)


class ProxySection(Section):
    """A part of `mcp_proxy`."""

    called: ClassVar[str] = "`mcp_proxy`"

    @classmethod
    def refuse(cls, unknown: Scalar, reader: Reader, known: Sequence[str]) -> Invalid:
        guess = nearest(unknown.text, known)
        hint = f"did you mean `{guess}`?" if guess else f"keys here: {listed(known)}"
        return reader.error(PROXY_UNKNOWN_KEY, unknown, f"{cls.called} has no key `{unknown.text}`", hint)
