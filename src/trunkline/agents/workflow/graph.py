"""How the states of a workflow hang together: where they lead, which can be reached, and whose output is there when."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from trunkline.agents.workflow.reader import Mention, WorkflowReader
from trunkline.config.suggest import hint_for
from trunkline.config.tree import Entry, Items, Scalar, Table
from trunkline.core.errors import BAD_REFERENCE, BAD_TRANSITION

_TRANSITIONS: Final = ("on_success", "on_failure")
Ways = Mapping[str, tuple[Scalar, ...]]
"""Each state with the names that it leads to, as they are written."""


def ways_of(states: Mapping[str, Entry]) -> Ways:
    return {name: tuple(_targets(entry)) for name, entry in states.items()}


def _targets(entry: Entry) -> Iterable[Scalar]:
    table = entry.value
    if not isinstance(table, Table) or _is(table, "terminal"):
        return
    listed = table.get("transitions")
    entries = listed.items if isinstance(listed, Items) else []
    targets = [entry.get("goto") for entry in entries if isinstance(entry, Table)]
    for target in (*targets, *(table.get(name) for name in _TRANSITIONS)):
        if isinstance(target, Scalar) and target.kind == "text" and target.text:
            yield target


def _is(table: Table, kind: str) -> bool:
    node = table.get("type")
    return isinstance(node, Scalar) and node.text == kind


def check_ways(initial: Scalar | None, states: Mapping[str, Entry], reader: WorkflowReader) -> None:
    """Every name that is led to is a state, and every state can be reached."""
    ways = ways_of(states)
    for name, targets in ways.items():
        with reader.report.of_step(name):
            for target in targets:
                _check_target(target, states, reader)
    if initial is None:
        return
    _check_target(initial, states, reader)
    if any(target.text not in states for targets in ((initial,), *ways.values()) for target in targets):
        return  # what cannot be reached then, can be once that is corrected
    reached = {initial.text} | reachable(ways, initial.text)
    for name, entry in states.items():
        if name not in reached:
            with reader.report.of_step(name):
                reader.warn(BAD_TRANSITION, entry.key, "No state leads here, so it never runs")


def _check_target(target: Scalar, states: Collection[str], reader: WorkflowReader) -> None:
    if target.text not in states:
        hint = hint_for(target.text, states, "states")
        reader.error(BAD_TRANSITION, target, f"There is no state `{target.text}`", hint)


def reachable(ways: Ways, start: str) -> set[str]:
    """The states that can come after this one; itself only where a way leads back."""
    found: set[str] = set()
    todo = [start]
    while todo:
        for target in ways.get(todo.pop(), ()):
            if target.text in ways and target.text not in found:
                found.add(target.text)
                todo.append(target.text)
    return found


def check_mentions(
    initial: Scalar | None, states: Mapping[str, Entry], inputs: Collection[str], reader: WorkflowReader
) -> None:
    """Every input that a text refers to is declared, and every state can have said something by then."""
    ways = ways_of(states)
    after = {name: reachable(ways, name) for name in ways}
    runs = {initial.text} | after[initial.text] if initial is not None and initial.text in states else set[str]()
    for mention in reader.mentions:
        with reader.report.of_step(mention.step):
            if mention.reference.kind == "inputs":
                _check_input(mention, inputs, reader)
            elif _check_state(mention, states, reader) and mention.step in runs:
                _check_order(mention, after, runs, reader)


def _check_input(mention: Mention, inputs: Collection[str], reader: WorkflowReader) -> None:
    name = mention.reference.name
    if name not in inputs:
        hint = hint_for(name, inputs, "inputs") or "declare it under `inputs`"
        reader.error(BAD_REFERENCE, mention.at, f"`{mention.reference}`: there is no input `{name}`", hint)


def _check_state(mention: Mention, states: Mapping[str, Entry], reader: WorkflowReader) -> bool:
    name = mention.reference.name
    if name not in states:
        hint = hint_for(name, states, "states")
        reader.error(BAD_REFERENCE, mention.at, f"`{mention.reference}`: there is no state `{name}`", hint)
        return False
    table = states[name].value
    if isinstance(table, Table) and _is(table, "terminal"):
        reader.error(BAD_REFERENCE, mention.at, f"`{mention.reference}`: a terminal state has no output")
        return False
    return True


def _check_order(mention: Mention, after: Mapping[str, set[str]], runs: set[str], reader: WorkflowReader) -> None:
    name = mention.reference.name
    if mention.when_ended and name == mention.step:
        return
    if name not in runs or mention.step not in after[name]:
        message = f"`{mention.reference}`: `{name}` can never have run before this"
        reader.error(BAD_REFERENCE, mention.at, message, "refer to a state that leads here")
