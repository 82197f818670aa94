"""Loads a workflow file: from its text to a workflow, or to all problems at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

from trunkline.agents.workflow.document import Workflow
from trunkline.agents.workflow.inputs import listed_inputs, read_inputs
from trunkline.agents.workflow.reader import (
    FOR_CALLERS,
    LocatedReference,
    ProxyBlock,
    SourceText,
    WorkflowReader,
    WorkflowSection,
    or_none,
)
from trunkline.agents.workflow.states import read_states
from trunkline.config.files import parse_text, read_text
from trunkline.config.problems import FileProblem, Report, hint_for
from trunkline.config.secrets import hide_secrets
from trunkline.config.section import key, read_section
from trunkline.config.tree import ListNode, Node, Scalar, Table, TableEntry
from trunkline.config.value_types import Text
from trunkline.core.errors import BAD_REFERENCE, BAD_TRANSITION, MISSING_KEY

_READ_SEPARATELY: Final = ("inputs", "states")
_INITIAL: Final = "initial"


class WorkflowDocumentSection(WorkflowSection):
    has_metadata: ClassVar[bool] = True
    unused: ClassVar[frozenset[str]] = FOR_CALLERS

    name: str = key(Text(any_scalar=True, may_be_empty=False), doc="The workflow's name")
    version: str = key(Text(any_scalar=True), default="", doc="Its version; not used")
    description: str = key(Text(any_scalar=True), default="", doc="A description; not used")


@dataclass(frozen=True, slots=True)
class LoadedWorkflow:
    """A workflow file that was read. `text` is for showing problems, with secrets hidden. `proxies` are for checks
    that need more than the file, and add to `report`; they exist even if the file has errors."""

    path: Path
    report: Report
    text: str
    proxies: tuple[ProxyBlock, ...] = ()
    parsed: Workflow | None = None

    @property
    def workflow(self) -> Workflow | None:
        """None if any problem is an error."""
        return None if self.report.failed else self.parsed

    @property
    def problems(self) -> tuple[FileProblem, ...]:
        return self.report.in_file_order()


def load_workflow(path: Path, *, environ: Mapping[str, str]) -> LoadedWorkflow:
    """Load a file. Never raises; every problem is in the report."""
    report = Report(str(path))
    text = or_none(lambda: read_text(path, report))
    if text is None:
        return LoadedWorkflow(path, report, "")
    return load_workflow_text(text, path, environ=environ)


def load_workflow_text(text: str, path: Path, *, environ: Mapping[str, str]) -> LoadedWorkflow:
    """Load text as if it were in the file at `path`."""
    report = Report(str(path))
    root = or_none(lambda: parse_text(text, path, report))
    if root is None:
        return LoadedWorkflow(path, report, hide_secrets(text, None))
    reader = WorkflowReader(report, environ, path.absolute().parent, SourceText(text))
    shown = hide_secrets(text, root)
    if not isinstance(root, Table):
        reader.wrong_type(root, "keys like `name:` and `states:`")
        return LoadedWorkflow(path, report, shown)
    return LoadedWorkflow(path, report, shown, parsed=_read_root(root, path, reader), proxies=tuple(reader.proxies))


def _read_root(root: Table, path: Path, reader: WorkflowReader) -> Workflow | None:
    keys = or_none(lambda: read_section(WorkflowDocumentSection, root, reader, also_known=_READ_SEPARATELY))
    inputs = read_inputs(root.get("inputs"), reader)
    reader.numbers = frozenset(declared.name for declared in inputs if declared.type in ("integer", "number"))
    table = _states_of(root, reader)
    if table is None:
        return None
    initial = _initial_of(table, reader)
    entries = {entry.key.text: entry for entry in table.entries if not _is_initial(entry)}
    states = read_states(entries, reader)
    transitions = {name: tuple(_targets(entry.value)) for name, entry in entries.items()}
    check_transitions(initial, entries, transitions, reader)
    # every name under `inputs`, whatever else is wrong there
    names = [table.get("name") for table in listed_inputs(root.get("inputs")) if isinstance(table, Table)]
    given = [name.text for name in names if isinstance(name, Scalar)]
    check_references(initial, entries, transitions, given, reader)
    if keys is None or initial is None or reader.report.failed:
        return None
    return Workflow(
        path=path,
        name=keys.name,
        version=keys.version,
        inputs=inputs,
        initial=initial.text,
        states=MappingProxyType(states),
    )


def _is_initial(entry: TableEntry) -> bool:
    """Whether it names the first state, and is not itself a state with that name."""
    return entry.key.text == _INITIAL and isinstance(entry.value, Scalar)


def _states_of(root: Table, reader: WorkflowReader) -> Table | None:
    node = root.get("states")
    if node is None:
        reader.error(
            MISSING_KEY, root, "Missing key `states`", "add the states, and `initial` with the name of the first"
        )
        return None
    if not isinstance(node, Table):
        reader.wrong_type(node, "a mapping", "give each state a name, and its keys below")
        return None
    return node


def _initial_of(states: Table, reader: WorkflowReader) -> Scalar | None:
    node: Node | None = states.get(_INITIAL)
    if node is None:
        at = states.entries[0].key if states.entries else states
        reader.error(MISSING_KEY, at, "Missing key `states.initial`", "it names the first state")
        return None
    if or_none(lambda: Text(may_be_empty=False).read(node, reader)) is None:
        return None
    assert isinstance(node, Scalar)
    return node


_TRANSITIONS: Final = ("on_success", "on_failure")
Transitions = Mapping[str, tuple[Scalar, ...]]
"""Each state with the names of the states that may follow it."""


def _targets(table: Node) -> Iterable[Scalar]:
    if not isinstance(table, Table) or _is_terminal(table):
        return
    listed = table.get("transitions")
    entries = listed.items if isinstance(listed, ListNode) else []
    targets = [entry.get("goto") for entry in entries if isinstance(entry, Table)]
    for target in (*targets, *(table.get(name) for name in _TRANSITIONS)):
        if isinstance(target, Scalar) and target.kind == "text" and target.text:
            yield target


def _is_terminal(node: Node) -> bool:
    kind = node.get("type") if isinstance(node, Table) else None
    return isinstance(kind, Scalar) and kind.text == "terminal"


def check_transitions(
    initial: Scalar | None, states: Mapping[str, TableEntry], transitions: Transitions, reader: WorkflowReader
) -> None:
    """Check that transitions lead to states, and that every state can be reached."""
    for name, targets in transitions.items():
        with reader.report.of_step(name):
            for target in targets:
                _check_target(target, states, reader)
    if initial is None:
        return
    _check_target(initial, states, reader)
    if any(target.text not in states for targets in ((initial,), *transitions.values()) for target in targets):
        return  # correcting that may make more states reachable
    reached = {initial.text} | reachable(transitions, initial.text)
    for name, entry in states.items():
        if name not in reached:
            with reader.report.of_step(name):
                reader.warn(BAD_TRANSITION, entry.key, "No state leads here, so it never runs")


def _check_target(target: Scalar, states: Collection[str], reader: WorkflowReader) -> None:
    if target.text not in states:
        hint = hint_for(target.text, states, "states")
        reader.error(BAD_TRANSITION, target, f"There is no state `{target.text}`", hint)


def reachable(transitions: Transitions, start: str) -> set[str]:
    """The states that can follow this one; itself only if transitions lead back."""
    found: set[str] = set()
    pending = [start]
    while pending:
        for target in transitions.get(pending.pop(), ()):
            if target.text in transitions and target.text not in found:
                found.add(target.text)
                pending.append(target.text)
    return found


def check_references(
    initial: Scalar | None,
    states: Mapping[str, TableEntry],
    transitions: Transitions,
    inputs: Collection[str],
    reader: WorkflowReader,
) -> None:
    """Check that references are to declared inputs, and to states that can have run before."""
    after = {name: reachable(transitions, name) for name in transitions}
    runs = {initial.text} | after[initial.text] if initial is not None and initial.text in states else set[str]()
    for use in reader.references:
        with reader.report.of_step(use.step):
            if use.reference.kind == "inputs":
                if (name := use.reference.name) not in inputs:
                    hint = hint_for(name, inputs, "inputs") or "declare it under `inputs`"
                    reader.error(BAD_REFERENCE, use.at, f"`{use.reference}`: there is no input `{name}`", hint)
            elif _check_state(use, states, reader) and use.step in runs:
                _check_order(use, after, runs, reader)


def _check_state(use: LocatedReference, states: Mapping[str, TableEntry], reader: WorkflowReader) -> bool:
    name = use.reference.name
    if name not in states:
        hint = hint_for(name, states, "states")
        reader.error(BAD_REFERENCE, use.at, f"`{use.reference}`: there is no state `{name}`", hint)
        return False
    if _is_terminal(states[name].value):
        reader.error(BAD_REFERENCE, use.at, f"`{use.reference}`: a terminal state has no output")
        return False
    return True


def _check_order(use: LocatedReference, after: Mapping[str, set[str]], runs: set[str], reader: WorkflowReader) -> None:
    name = use.reference.name
    if use.when_ended and name == use.step:
        return
    if name not in runs or use.step not in after[name]:
        message = f"`{use.reference}`: `{name}` can never have run before this"
        reader.error(BAD_REFERENCE, use.at, message, "refer to a state that leads here")
