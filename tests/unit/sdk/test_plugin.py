"""Plugins made with `trunkline.plugin`, in a process of their own behind a gateway."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.plugin_rig import JOBS, House, housed, jobs_entry, value
from tests.support.servers import Records
from tests.support.waiting import at_most

from trunkline.plugin import Plugin


async def ready(house: House) -> None:
    await house.is_in("ready", "jobs")


async def test_it_says_what_it_is_and_what_it_can_do_and_has_the_environment_of_the_handshake(tmp_path: Path) -> None:
    env = {"PLUGIN_CLIENT_CERT": "a certificate", "OWN": "value"}
    async with housed(tmp_path, jobs_entry(env=env)) as house:
        await ready(house)
        snapshot = house.gateway.router.catalog.snapshot("jobs")
        assert snapshot is not None
        assert json.loads(snapshot.server_info) == {"name": "jobs", "version": "1.2.3"}
        definition = house.definitions()["jobs_all-types"]
        assert definition["description"] == "One input of each type"
        properties = definition["inputSchema"]["properties"]
        assert properties["text"] == {"type": "string", "description": "Any text"}
        assert properties["page"] == {"type": "string", "format": "uri"}
        assert properties["table"] == {"type": "object", "default": {"a": [1]}}
        assert properties["yes"] == {"type": "boolean", "default": True}
        assert definition["inputSchema"]["required"] == ["text", "page"]
        assert snapshot.warnings == ()
        found = value(await house.call("environment", source="jobs"))["structuredContent"]
        assert found["AWF_PLUGIN"] == "awf-plugin-v1"
        assert found["PLUGIN_PROTOCOL_VERSIONS"] == "1"
        assert Path(found["PLUGIN_UNIX_SOCKET_DIR"]).stat().st_mode & 0o777 == 0o700
        assert found["OWN"] == "value"
        assert "PLUGIN_CLIENT_CERT" not in found


async def test_results_and_failures_of_every_sort_and_a_function_that_blocks_holds_up_no_other(tmp_path: Path) -> None:
    plugin = Records(tmp_path, "jobs")
    async with housed(tmp_path, jobs_entry(config={"a": [1, None]}, args=[JOBS, str(plugin.journal)])) as house:
        await ready(house)
        stuck = house.begin("block", {"seconds": 3600}, source="jobs")
        await plugin.wait_for("call", tool="block")

        async def call(tool: str, **arguments: object) -> dict[str, object]:
            return value(await house.call(tool, arguments, source="jobs"))

        both = await call("both", output="two\nlines")
        assert both["structuredContent"] == {"length": 9, "config": {"a": [1, None]}}
        assert both["content"] == [{"type": "text", "text": "two\nlines"}]
        given = {"text": "é", "page": "x", "items": [1], "whole": 1}
        everything = await call("all-types", **given)
        assert everything["structuredContent"] == {**given, "part": 0.5, "yes": True, "table": {"a": [1]}}
        assert await call("say", text="hi") == {"content": [{"type": "text", "text": ""}]}
        for tool, arguments, words in (
            ("fail", {"why": "so"}, "so"),
            ("crash", {}, "KeyError: 'nobody expected this'"),
            ("echo", {}, "Wrong arguments for `echo`: `text` is missing"),
            ("echo", {"text": 1}, "Wrong arguments for `echo`: `text` must be a string, not a number"),
            ("echo", {"text": "a", "b": 1}, "Wrong arguments for `echo`: `b` is not known here (known: `text`)"),
        ):
            failed = await call(tool, **arguments)
            assert failed == {"content": [{"type": "text", "text": words}], "isError": True}
        assert not stuck.done
    assert stuck.done
    assert plugin.events("shutdown")
    assert plugin.pids() == []


async def test_a_start_that_is_refused_is_told_with_its_words(tmp_path: Path) -> None:
    async with housed(tmp_path, jobs_entry(config={"refuse": "no such cluster"})) as house:
        health = await house.is_in("down", "jobs")
        assert "plugin init failed: no such cluster" in health.reason
        assert '"@level": "error"' in health.stderr_tail


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, "this is a plugin, which a host starts"),
        (
            {"AWF_PLUGIN": "awf-plugin-v1", "PLUGIN_PROTOCOL_VERSIONS": "2,3"},
            "the host speaks the protocol versions 2, 3",
        ),
        ({"AWF_PLUGIN": "awf-plugin-v1", "PLUGIN_CLIENT_CERT": "x"}, "the host asks for TLS"),
    ],
)
def test_without_a_host_it_can_serve_it_says_so_and_ends(environ: dict[str, str], words: str) -> None:
    environ = {"PATH": os.environ["PATH"], **environ}
    ended = subprocess.run([sys.executable, JOBS], env=environ, capture_output=True, text=True, timeout=at_most(30))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert words in ended.stderr


def test_two_operations_of_one_name_are_refused() -> None:
    plugin = Plugin("twice")
    plugin.operation(lambda: None)  # a lambda has a name too
    with pytest.raises(ValueError, match="already"):
        plugin.operation(lambda: None)
