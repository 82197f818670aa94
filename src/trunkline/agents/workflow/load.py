"""Loading a workflow file: its text in, the workflow or every problem at once out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

from trunkline.agents.workflow.document import Workflow
from trunkline.agents.workflow.graph import check_mentions, check_ways
from trunkline.agents.workflow.inputs import listed_inputs, read_inputs
from trunkline.agents.workflow.places import Source
from trunkline.agents.workflow.proxy import ProxyUse
from trunkline.agents.workflow.reader import WorkflowReader, attempt
from trunkline.agents.workflow.states import INITIAL, Found, read_states
from trunkline.agents.workflow.unsupported import FOR_CALLERS, WorkflowSection
from trunkline.config.file_text import parse_text, read_text
from trunkline.config.report import FileProblem, Invalid, Report
from trunkline.config.secrets import hide_secrets
from trunkline.config.section import key, read_section
from trunkline.config.shapes import Text
from trunkline.config.tree import Node, Scalar, Table
from trunkline.core.errors import MISSING_KEY

_READ_APART: Final = ("inputs", "states")


class WorkflowKeys(WorkflowSection):
    has_metadata: ClassVar[bool] = True
    unused: ClassVar[frozenset[str]] = FOR_CALLERS

    name: str = key(Text(written=True, may_be_empty=False), doc="What the workflow is called")
    version: str = key(Text(written=True), default="", doc="Its version; not used")
    description: str = key(Text(written=True), default="", doc="For people; not used")


@dataclass(frozen=True, slots=True)
class LoadedWorkflow:
    """`text` is for showing the places, its secrets hidden. `uses` are for checks that need more than the file, which
    go on in `report`; they are there even where the file has errors."""

    path: Path
    report: Report
    text: str
    uses: tuple[ProxyUse, ...] = ()
    read: Workflow | None = None

    @property
    def workflow(self) -> Workflow | None:
        """None as soon as any problem is an error."""
        return None if self.report.failed else self.read

    @property
    def problems(self) -> tuple[FileProblem, ...]:
        return self.report.in_file_order()


def load_workflow(path: Path, *, environ: Mapping[str, str]) -> LoadedWorkflow:
    """Whatever the file holds, this returns; every problem is in the report."""
    report = Report(str(path))
    try:
        text = read_text(path, report)
    except Invalid:
        return LoadedWorkflow(path, report, "")
    return load_workflow_text(text, path, environ=environ)


def load_workflow_text(text: str, path: Path, *, environ: Mapping[str, str]) -> LoadedWorkflow:
    """Load text as if it stood in the file at `path`."""
    report = Report(str(path))
    root = attempt(lambda: parse_text(text, path, report))
    if root is None:
        return LoadedWorkflow(path, report, hide_secrets(text, None))
    reader = WorkflowReader(report, environ, path.absolute().parent, Source(text))
    shown = hide_secrets(text, root)
    if not isinstance(root, Table):
        reader.wrong_type(root, "keys like `name:` and `states:`")
        return LoadedWorkflow(path, report, shown)
    found = Found()
    read = _read_root(root, path, reader, found)
    return LoadedWorkflow(path, report, shown, tuple(found.uses), read)


def _read_root(root: Table, path: Path, reader: WorkflowReader, found: Found) -> Workflow | None:
    keys = attempt(lambda: read_section(WorkflowKeys, root, reader, also_known=_READ_APART))
    inputs = read_inputs(root.get("inputs"), reader)
    reader.numbers = frozenset(declared.name for declared in inputs if declared.type in ("integer", "number"))
    states = _states_of(root, reader)
    if states is None:
        return None
    initial = _initial_of(states, reader)
    read_states(states, reader, found)
    check_ways(initial, found.written, reader)
    check_mentions(initial, found.written, _names_of(root.get("inputs")), reader)
    if keys is None or initial is None or reader.report.failed:
        return None
    return Workflow(
        path=path,
        name=keys.name,
        version=keys.version,
        inputs=inputs,
        initial=initial.text,
        states=MappingProxyType(found.good),
    )


def _states_of(root: Table, reader: WorkflowReader) -> Table | None:
    node = root.get("states")
    if node is None:
        reader.error(MISSING_KEY, root, "Missing key `states`", "the states, and `initial` with the name of the first")
        return None
    if not isinstance(node, Table):
        reader.wrong_type(node, "a group of keys", "give each state a name, and its keys below")
        return None
    return node


def _initial_of(states: Table, reader: WorkflowReader) -> Scalar | None:
    node: Node | None = states.get(INITIAL)
    if node is None:
        at = states.entries[0].key if states.entries else states
        reader.error(MISSING_KEY, at, "Missing key `states.initial`", "it names the first state")
        return None
    if attempt(lambda: Text(may_be_empty=False).read(node, reader)) is None:
        return None
    assert isinstance(node, Scalar)
    return node


def _names_of(inputs: Node | None) -> list[str]:
    """Every name under `inputs`, whatever else is wrong there."""
    names = [table.get("name") for table in listed_inputs(inputs) if isinstance(table, Table)]
    return [name.text for name in names if isinstance(name, Scalar)]
