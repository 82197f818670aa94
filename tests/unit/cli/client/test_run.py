"""A request, run to its end. Ctrl+C is tried on the real program, in tests/e2e."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from tests.support.ports import free_port

from trunkline.cli.client.gateway_client import GatewayClient
from trunkline.cli.client.run import run_with_client
from trunkline.cli.spinner import Spinner
from trunkline.cli.terminal import print_failure
from trunkline.core.errors import BAD_VALUE, DEADLINE, SOURCE_DOWN, GatewayError, Problem


@pytest.fixture(autouse=True)
def plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one keeps a pipe for signals as long as the process lives."""
    monkeypatch.setenv("TRUNKLINE_LOOP", "asyncio")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "trunkline.yaml"
    path.write_text("gateway: {state_dir: state, meta_tools: true}")
    return path


async def tools(client: GatewayClient, spinner: Spinner) -> list[str]:
    return [tool.name for tool in await client.tools()]


def status_of(*arguments: Any) -> int | str | None:
    with pytest.raises(SystemExit) as end:
        run_with_client(*arguments)
    return end.value.code


def test_the_answer_is_shown_and_its_status_ends_the_program(config: Path) -> None:
    shown: list[str] = []

    def show(answer: list[str]) -> int:
        shown.extend(answer)
        return 7

    assert status_of(tools, show, config, None) == 7
    assert "find_tool" in shown


def test_nobody_to_ask_is_told_and_ends_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(tools, len, None, f"http://127.0.0.1:{free_port()}") == 1
    assert status_of(tools, len, None, "nonsense") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "error: TL207: http://127.0.0.1:" in err
    assert "error: TL104: `nonsense` is not the URL of a gateway" in err


def test_wrong_use_that_only_the_schema_shows_is_still_wrong_use(config: Path) -> None:
    async def request(client: GatewayClient, spinner: Spinner) -> None:
        raise click.UsageError("`count` must be a whole number")

    with pytest.raises(click.UsageError):
        run_with_client(request, lambda _: 0, config, None)


@pytest.mark.parametrize(
    ("problem", "status", "told"),
    [
        (Problem(code=BAD_VALUE, message="bad", where="f:1:2"), 2, "error: f:1:2: TL104: bad\n"),
        (Problem(code=SOURCE_DOWN, message="down\x1b[1m", hint="a\nb"), 1, "error: TL201: down [1m\nhint: a b\n"),
        (
            Problem(code=DEADLINE, message="late", executed="unknown"),
            1,
            "error: TL305: late\nthe tool may have run\n",
        ),
    ],
)
def test_a_problem_is_told_with_the_status_it_owns(
    capsys: pytest.CaptureFixture[str], problem: Problem, status: int, told: str
) -> None:
    assert print_failure(GatewayError(problem)) == status
    assert capsys.readouterr() == ("", told)


def test_single_faults_follow_the_problem(capsys: pytest.CaptureFixture[str]) -> None:
    print_failure(GatewayError(Problem(code=BAD_VALUE, message="all"), (Problem(code=BAD_VALUE, message="one"),)))
    assert capsys.readouterr().err == "error: TL104: all\nerror: TL104: one\n"
