from __future__ import annotations

import functools
from typing import Annotated, Any

import pytest

from trunkline.client import App, Progress, SchemaError, ToolError


def definition(app: App, name: str) -> dict[str, Any]:
    return app.tools[name].definition(f"{app.name}:{name}")


def test_a_function_says_all_that_an_agent_needs() -> None:
    app = App("Board")

    @app.tool
    def draw(text: Annotated[str, "what to write"], times: int = 1, bold: bool | None = None) -> str:
        """Write something.

        On the board.
        """
        return text * times

    assert draw("a", 2) == "aa"
    assert definition(app, "draw") == {
        "name": "Board:draw",
        "description": "Write something.\n\nOn the board.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "what to write"},
                "times": {"type": "integer", "default": 1},
                "bold": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
            },
            "required": ["text"],
            "additionalProperties": False,
        },
    }


def test_name_description_title_and_annotations_can_be_given() -> None:
    app = App("Board")

    @app.tool(name="wipe-all", description="Clean it", title="Wipe", annotations={"destructiveHint": True})
    def wipe() -> None:
        """Not this."""

    assert definition(app, "wipe-all") == {
        "name": "Board:wipe-all",
        "description": "Clean it",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "title": "Wipe",
        "annotations": {"destructiveHint": True},
    }


def test_the_parameter_for_progress_is_not_the_agents() -> None:
    app = App("Board")

    @app.tool
    def work(steps: int, how_far: Progress, also: Progress | None = None) -> None: ...

    tool = app.tools["work"]
    assert list(tool.input_schema["properties"]) == ["steps"]
    progress = Progress(lambda _: None)
    assert tool.arguments({"steps": 1}, progress) == {"steps": 1, "how_far": progress, "also": progress}


def test_methods_partials_and_objects_that_are_called_are_tools_too() -> None:
    class Counter:
        def add(self, number: int) -> int:
            """Add."""
            return number

        async def __call__(self, word: str) -> str:
            """Call."""
            return word

    app = App("Board")
    app.tool(Counter().add)
    app.tool(name="call")(Counter())
    app.tool(name="two")(functools.partial(Counter().add, number=2))
    assert list(app.tools["add"].input_schema["properties"]) == ["number"]
    assert list(app.tools["call"].input_schema["properties"]) == ["word"]
    assert app.tools["call"].is_async
    assert not app.tools["add"].is_async
    assert app.tools["two"].input_schema["properties"]["number"]["default"] == 2


def no_hint(a): ...


def many(*words: str): ...


def any_name(**words: str): ...


def by_place(a: int, /): ...


def raw(data: bytes): ...


def unknown(data: NotThere): ...  # noqa: F821


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (no_hint, "tool `no_hint`, parameter `a`: it has no type hint"),
        (many, "tool `many`, parameter `words`: arguments are given by name"),
        (any_name, "parameter `words`: arguments are given by name"),
        (by_place, "parameter `a`: arguments are given by name"),
        (raw, "tool `raw`, parameter `data`: `bytes` cannot be written as JSON"),
        (unknown, "tool `unknown`: a type hint cannot be read (name 'NotThere' is not defined)"),
        (dict, "tool `dict`: its parameters cannot be read"),
        (lambda: None, "`<lambda>` cannot be a tool's name"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_where_it_is_declared(function: Any, reason: str) -> None:
    app = App("Board")
    with pytest.raises(SchemaError) as raised:
        app.tool(function)
    assert reason in str(raised.value)
    assert app.tools == {}


def test_a_default_that_json_cannot_express_is_a_default_all_the_same() -> None:
    app = App("Board")

    @app.tool
    def wait(seconds: float = float("inf"), count: int = None) -> None: ...  # noqa: RUF013

    assert app.tools["wait"].input_schema["properties"] == {"seconds": {"type": "number"}, "count": {"type": "integer"}}
    assert app.tools["wait"].arguments(None, Progress(lambda _: None)) == {}


def test_everything_that_is_wrong_with_arguments_is_said_at_once() -> None:
    app = App("Board")

    @app.tool
    def draw(x: int, y: int, text: str) -> None: ...

    with pytest.raises(ToolError) as raised:
        app.tools["draw"].arguments({"x": "1", "z": 3, "text": "a"}, Progress(lambda _: None))
    assert str(raised.value) == (
        "Wrong arguments for `draw`: `z` is not known here (known: `x`, `y`, `text`); "
        "`x` must be an integer, not a string; `y` is missing"
    )
    with pytest.raises(ToolError, match="must be an object"):
        app.tools["draw"].arguments([1], Progress(lambda _: None))
