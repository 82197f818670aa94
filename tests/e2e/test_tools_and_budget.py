"""`tools QUERY` and `budget` give the same from a running gateway in any mode, and without one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import Done, trunkline
from tests.support.gateway import Gateway, write_config
from tests.support.servers import StdioFaults
from tests.support.waiting import wait_until

LONG = "It says more about itself than anybody wants to read. " * 12


def described(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


TOOLS = [
    described("render_page", "Take a screenshot of a web page and save it as a picture."),
    described("send_mail", "Send an e-mail to one or more people."),
    *(described(f"other_{number}", f"Number {number}. {LONG}") for number in range(40)),
]
GATEWAY = {"meta_tools": True, "disclosure": "search", "token": "secret"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a gateway runs whose clients have to search, and that wants a token."""
    folder = tmp_path_factory.mktemp("searching")
    with Gateway(folder, StdioFaults(folder, "s", tools=TOOLS).entry(), **GATEWAY):
        wait_until(lambda: trunkline("servers", cwd=folder).returncode == 0, "its server is up")
        yield folder


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """Where none runs, with the same file."""
    write_config(tmp_path, StdioFaults(tmp_path, "s", tools=TOOLS).entry(), **GATEWAY)
    return tmp_path


@pytest.fixture(params=["running", "alone"])
def where(request: pytest.FixtureRequest, folder: Path, alone: Path) -> Path:
    return folder if request.param == "running" else alone


def names(done: Done) -> list[str]:
    return [tool["name"] for tool in json.loads(done.stdout)["tools"]]


def test_the_whole_list_is_shown_though_clients_have_to_search(folder: Path) -> None:
    done = trunkline("tools", "--json", cwd=folder)
    assert {"s_render_page", "s_send_mail", "s_other_39"} <= set(names(done))


def test_tools_are_found_by_what_they_do(where: Path) -> None:
    done = trunkline("tools", "take", "a", "picture of a website", cwd=where)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].startswith("s_render_page")
    assert " of " in done.stderr
    one = trunkline("tools", "--limit", "1", "--json", "take a picture", cwd=where)
    assert names(one) == ["s_render_page"]


def test_reasons_are_words_in_fields_and_how_near_the_meaning_is(where: Path) -> None:
    def by_meaning_too() -> dict[str, Any] | None:
        done = trunkline("tools", "--explain", "--json", "picture of a website", cwd=where)
        why = json.loads(done.stdout)["why"]["s_render_page"]
        return why if "cosine" in why else None

    why = wait_until(by_meaning_too, "what the tools mean is known")
    words = {(found["word"], found["field"]) for found in why["words"]}
    assert ("picture", "description") in words
    shown = trunkline("tools", "--explain", "picture of a website", cwd=where).stdout.splitlines()
    assert shown[0].startswith("s_render_page  Take a screenshot")
    assert "`picture` in its description" in shown[1]
    assert shown[2].startswith("  meaning: 0.")


def test_reasons_need_a_query(folder: Path) -> None:
    done = trunkline("tools", "--explain", cwd=folder)
    assert done.returncode == 2
    assert "needs a QUERY" in done.stderr


def test_the_budget_is_the_same_with_and_without_a_gateway(folder: Path, alone: Path) -> None:
    there, here = (trunkline("budget", "--json", cwd=where) for where in (folder, alone))
    assert there.returncode == here.returncode == 0
    assert json.loads(there.stdout) == json.loads(here.stdout)
    budget = json.loads(there.stdout)
    assert (budget["disclosure"], budget["shown"]) == ("search", "search")
    assert sum(tool["tokens"] for tool in budget["tools"]) == budget["modes"]["all"]["tokens"]
    assert budget["modes"]["search"]["tokens"] < budget["modes"]["all"]["tokens"] / 10


def test_the_budget_is_shown_by_server_or_by_tool(folder: Path) -> None:
    by_server = trunkline("budget", cwd=folder).stdout.splitlines()
    assert by_server[0].split() == ["SERVER", "TOOLS", "TOKENS", "SHARE"]
    assert by_server[1].split()[0] == "s"
    by_tool = trunkline("budget", "s", cwd=folder).stdout.splitlines()
    assert by_tool[1].startswith("s_other_")
    assert not any(line.startswith("trunkline") for line in by_tool)
    everything = trunkline("budget", "--tools", cwd=folder).stdout
    assert "list_servers" in everything
    unknown = trunkline("budget", "nobody", cwd=folder)
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "No server with tools is called `nobody`" in unknown.stderr


def test_who_has_no_token_is_told(folder: Path, tmp_path: Path) -> None:
    url = json.loads((folder / "trunkline.json").read_text())["gateway"]["listen"]
    for command in (["budget"], ["tools", "mail"]):
        done = trunkline(*command, "--url", f"http://{url}", cwd=tmp_path)
        assert done.returncode != 0
        assert "token" in done.stderr
