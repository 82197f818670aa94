from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
import pytest

from trunkline.config.call_arguments import InvalidArguments, StrictArguments, accepted_names, argument, read_arguments
from trunkline.core.errors import INVALID_PARAMS


class Taken(StrictArguments):
    path: Annotated[str, argument("A path", "file_path")]
    count: Annotated[int, argument("How many", ge=1)] | None = None
    wait: Annotated[float, argument("How long")] = 1.5
    every: Annotated[bool, argument("All of them", "all")] = False
    mode: Annotated[Literal["up", "down"], argument("Which way")] = "up"


def read(arguments: object) -> dict[str, Any]:
    return msgspec.structs.asdict(read_arguments(json.dumps({"name": "x", "arguments": arguments}).encode(), Taken))


def fault(arguments: object) -> str:
    with pytest.raises(InvalidArguments) as caught:
        read(arguments)
    return str(caught.value)


def test_what_is_left_out_has_its_default() -> None:
    assert read({"path": "a"}) == {"path": "a", "count": None, "wait": 1.5, "every": False, "mode": "up"}
    assert read({"path": "a", "count": None, "every": None})["every"] is False


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("count", "10", 10),
        ("count", 10.0, 10),
        ("count", "1e1", 10),
        ("wait", "2.5", 2.5),
        ("wait", 3, 3),
        ("every", "true", True),
        ("every", "False", False),
        ("every", "yes", True),
        ("every", 1, True),
        ("all", True, True),
        ("file_path", "b", "b"),
    ],
)
def test_what_models_write_is_understood(name: str, written: object, meant: object) -> None:
    names = {"all": "every", "file_path": "path"}
    given = {name: written} if name == "file_path" else {"path": "a", name: written}
    assert read(given)[names.get(name, name)] == meant


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "`path` is missing: it takes `path`, `count`, `wait`, `every`, `mode`"),
        (None, "`path` is missing"),
        ({"path": None}, "`path` is missing"),
        ({"path": "a", "cuont": 1}, "Unknown argument `cuont`: did you mean `count`?"),
        ({"path": "a", "zzz": 1}, "Unknown argument `zzz`: it takes"),
        ({"path": 5}, "`path` must be text, not 5"),
        ({"file_path": ["a"]}, '`file_path` must be text, not ["a"]'),
        ({"path": "a", "count": 1.5}, "`count` must be a whole number, not 1.5"),
        ({"path": "a", "count": "many"}, '`count` must be a whole number, not "many"'),
        ({"path": "a", "count": "nan"}, "`count` must be a whole number"),
        ({"path": "a", "count": True}, "`count` must be a whole number, not true"),
        ({"path": "a", "count": "9" * 5000}, "`count` cannot be"),
        ({"path": "a", "count": 0}, "`count` must be at least 1"),
        ({"path": "a", "every": 2}, "`every` must be true or false, not 2"),
        ({"path": "a", "mode": "sideways"}, "`mode` must be one of `up`, `down`"),
        ({"path": "a", "file_path": "b"}, "`path` and `file_path` are the same argument with different values"),
        ([], "The arguments must be one JSON object"),
        ("path", "The arguments must be one JSON object"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(arguments: object, said: str) -> None:
    assert said in fault(arguments)


def test_two_names_with_one_value_are_no_contradiction() -> None:
    assert read({"path": "a", "file_path": "a"})["path"] == "a"


def test_no_argument_is_repeated_at_length() -> None:
    assert len(fault({"path": {"x": "y" * 10_000}})) < 300
    assert len(fault({"x" * 10_000: 1})) < 400


def test_broken_arguments_are_a_fault_of_the_caller() -> None:
    for raw in (
        b'{"arguments": {"path": "\\ud800"}}',
        b'{"arguments": {"path": 1e999}}',
        b'{"arguments": ' + b"[" * 5000,
    ):
        with pytest.raises(InvalidArguments):
            read_arguments(raw, Taken)


def test_a_problem_has_the_code_of_wrong_parameters_and_a_hint() -> None:
    with pytest.raises(InvalidArguments) as caught:
        read({"path": "a", "cuont": 1})
    problem = caught.value.problem
    assert (problem.code, problem.message) == (INVALID_PARAMS, "Unknown argument `cuont`")
    assert problem.hint == "did you mean `count`?"


def test_what_is_wrong_inside_a_list_is_named_by_its_place() -> None:
    class Listed(StrictArguments):
        tags: list[str]

    with pytest.raises(InvalidArguments, match=r"^`tags\[1\]` must be text$"):
        read_arguments(b'{"arguments": {"tags": ["a", 5]}}', Listed)


def test_all_names_of_an_argument_are_known() -> None:
    assert accepted_names(Taken) == {
        "path": "path",
        "file_path": "path",
        "count": "count",
        "wait": "wait",
        "every": "every",
        "all": "every",
        "mode": "mode",
    }
