"""`servers`, `tools`, `call` and `explain --tool` as programs see them: pipes, exit statuses, all ways to a gateway."""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import Done, environment, trunkline
from tests.support.gateway import TRUNKLINE, Gateway, write_config
from tests.support.ports import free_port
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.trust import trust
from tests.support.waiting import START_WAIT_S, at_most, wait_until

MIX = {
    "name": "mix",
    "description": "Takes all sorts",
    "inputSchema": {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "deep": {"type": "boolean"},
            "tags": {"type": "array"},
            "maybe": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        },
        "required": ["text"],
    },
}
PNG = base64.b64encode(b"\x89PNG").decode()
BAD = {"bad": {"kind": "mcp_stdio", "command": "/nowhere/at/all"}}


class Stage:
    """A gateway that runs for `trunkline.json` in its folder, with a server `s` that is well and one that is not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = StdioFaults(folder, "s", tools=[MIX])
        self.gateway = Gateway(folder, self.server.entry(), BAD)
        self.url = f"http://127.0.0.1:{self.gateway.port}"

    def run(self, *args: str, **more: Any) -> Done:
        return trunkline(*args, cwd=self.folder, **more)

    def shell(self, command: str) -> Done:
        whole = ["sh", "-c", command]
        env = environment(self.folder)
        done = subprocess.run(whole, cwd=self.folder, env=env, capture_output=True, text=True, timeout=at_most(60))
        assert "Traceback" not in done.stderr
        return done

    def result(self, result: dict[str, Any], *args: str) -> Done:
        """Call a tool that returns exactly this."""
        given = base64.b64encode(json.dumps(result).encode()).decode()
        return self.run("call", "s_verbatim", f"result={given}", *args)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("stage"))
    with stage.gateway:
        wait_until(lambda: states(stage.run("servers", "--json")) == {"s": "ready", "bad": "down"}, "all have settled")
        yield stage


def states(done: Done) -> dict[str, str]:
    return {status["name"]: status["state"] for status in json.loads(done.stdout)["servers"]}


def structured(done: Done) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# servers and tools ----------------------------------------------------------------------------------------------------


def test_servers_tells_who_is_well_and_what_to_do_about_the_rest(stage: Stage) -> None:
    done = stage.run("servers")
    assert done.returncode == 1
    head, well, bad = done.stdout.splitlines()
    assert head.split()[:2] == ["SERVER", "STATE"]
    assert well.split()[:2] == ["s", "ready"]
    assert bad.split()[:2] == ["bad", "down"]
    assert "command not found" in bad
    assert "hint: install it" in done.stderr
    assert "2 servers: 1 ready, 1 down" in done.stderr


def test_servers_as_json_is_what_the_operators_route_says(stage: Stage) -> None:
    done = stage.run("servers", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    first = json.loads(done.stdout)["servers"][0]
    assert (first["name"], first["kind"], first["origin"]) == ("s", "mcp_stdio", "file")


def test_tools_are_listed_with_what_they_take(stage: Stage) -> None:
    done = stage.run("tools")
    assert done.returncode == 0
    mixed = next(line for line in done.stdout.splitlines() if line.startswith("s_mix "))
    assert mixed.split() == ["s_mix", "text", "[count]", "[deep]", "[tags]", "[maybe]", "Takes", "all", "sorts"]
    names = {tool["name"] for tool in json.loads(stage.run("tools", "--json").stdout)["tools"]}
    assert {line.split()[0] for line in done.stdout.splitlines()[1:]} == names


def test_tools_are_found_by_words(stage: Stage) -> None:
    done = stage.run("tools", "all", "sorts")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].startswith("s_mix")
    none = stage.run("tools", "zebra")
    assert (none.returncode, none.stdout) == (1, "")
    assert "no tool matches `zebra`" in none.stderr


def test_a_reader_that_stops_early_is_no_error(stage: Stage) -> None:
    done = stage.shell(f"{TRUNKLINE} tools | head -1")
    assert done.stdout.split() == ["TOOL", "ARGUMENTS", "DESCRIPTION"]
    assert "Error" not in done.stderr


def test_streams_that_are_closed_or_full_are_no_crash(stage: Stage) -> None:
    assert stage.shell(f"{TRUNKLINE} tools >&-").returncode == 0
    assert stage.shell(f"{TRUNKLINE} call s_echo a=1 >&- 2>&-").returncode == 0
    full = stage.shell(f"{TRUNKLINE} tools >/dev/full")
    assert (full.returncode, full.stderr) == (1, "error: No space left on device\n")


# What is typed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["s_mix", "s.mix", "s:mix", "s__mix", "mix", "trunkline.s_mix"])
def test_values_are_made_fit_by_the_schema_whatever_the_tool_is_called_by(stage: Stage, name: str) -> None:
    done = stage.run("call", name, "text=5", "count=5", "deep=true", 'tags=["a"]', "maybe=null", "more=1", "raw:=1")
    sent = {"text": "5", "count": 5, "deep": True, "tags": ["a"], "maybe": None, "more": "1", "raw": 1}
    assert structured(done) == sent


@pytest.mark.parametrize("name", ["s.mix", "mix"])
def test_who_is_no_operator_gets_them_made_fit_too(stage: Stage, tmp_path: Path, name: str) -> None:
    assert structured(trunkline("call", name, "count=5", "--url", stage.url, cwd=tmp_path)) == {"count": 5}


def test_json_is_passed_on_as_it_was_typed(stage: Stage) -> None:
    text = '{"n": 1.10, "id": 123456789012345678901234567890}'
    for done in (stage.run("call", "s_wire", text), stage.run("call", "s_wire", "-", stdin=text)):
        assert done.returncode == 0
        assert text.encode() in base64.b64decode(done.stdout)
    assert structured(stage.run("call", "s_mix", '{"text":\n"a"}')) == {"text": "a"}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["count=five"], "`count` must be a whole number, not `five`"),
        (["text=a", "text=b"], "`text` is given twice"),
        (["{text: a}"], "not a JSON object"),
        (["text"], "neither `key=value` nor a JSON object"),
    ],
    ids=str,
)
def test_what_cannot_be_understood_is_wrong_use(stage: Stage, typed: list[str], said: str) -> None:
    done = stage.run("call", "s_mix", *typed)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "trunkline call --help" in done.stderr


# What comes back ------------------------------------------------------------------------------------------------------


def test_text_and_data_are_on_stdout(stage: Stage) -> None:
    text = {"type": "text", "text": "plain\x1b[31m words"}
    assert stage.result({"content": [text]}).stdout == "plain\x1b[31m words\n"
    done = stage.result({"content": [{"type": "text", "text": '{"n": 1}'}], "structuredContent": {"n": 1}})
    assert (done.returncode, done.stdout, done.stderr) == (0, '{\n  "n": 1\n}\n', "")


def test_pictures_and_sound_are_saved_here_or_where_one_says(stage: Stage, tmp_path: Path) -> None:
    picture = {"type": "image", "mimeType": "image/png", "data": PNG}
    sound = {"type": "audio", "mimeType": "audio/wav", "data": PNG}
    for number in (1, 2):
        done = stage.result({"content": [picture, sound]}, "--save", str(tmp_path / "new"))
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr.count("saved ") == 2
        assert len(list((tmp_path / "new").iterdir())) == 2 * number
    assert (tmp_path / "new" / "s_verbatim-1.png").read_bytes() == b"\x89PNG"
    assert (tmp_path / "new" / "s_verbatim-2-2.wav").exists()
    assert "saved s_verbatim-1.png" in stage.result({"content": [picture]}).stderr


def test_links_and_resources_are_shown(stage: Stage) -> None:
    link = {"type": "resource_link", "uri": "file:///a", "name": "a"}
    inside = {"type": "resource", "resource": {"uri": "x:y", "text": "inside"}}
    done = stage.result({"content": [link, inside]})
    assert (done.returncode, done.stdout, done.stderr) == (0, "file:///a\ninside\n", "  a\n")


def test_a_failed_tool_is_1_and_speaks_on_stderr(stage: Stage) -> None:
    done = stage.run("call", "s_fail")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "the tool failed\n")
    as_json = stage.run("call", "s_fail", "--json")
    assert (as_json.returncode, json.loads(as_json.stdout)["isError"]) == (1, True)


def test_a_servers_own_error_is_1_and_as_it_was(stage: Stage) -> None:
    done = stage.run("call", "s_refuse")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: -32050: refused by the tool\n")
    assert "because" in done.stderr
    error = json.loads(stage.run("call", "s_refuse", "--json").stdout)["error"]
    assert error == {"code": -32050, "message": "refused by the tool", "data": {"why": ["because", 1.5]}}


def test_our_own_problems_have_their_code_and_what_to_do(stage: Stage) -> None:
    unknown = stage.run("call", "nosuch")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "error: TL301: Unknown tool: nosuch\nhint: `trunkline tools`" in unknown.stderr
    down = stage.run("call", "bad.x")
    assert down.returncode == 1
    assert "error: TL201: Server bad is down" in down.stderr
    assert "hint: " in down.stderr


def test_a_server_lost_during_the_call_is_told_with_what_may_have_happened(tmp_path: Path) -> None:
    with Gateway(tmp_path, StdioFaults(tmp_path, "s").entry()):
        lost = trunkline("call", "s_crash", cwd=tmp_path)
        assert (lost.returncode, lost.stdout) == (1, "")
        assert "error: TL306" in lost.stderr
        assert "the tool may have run" in lost.stderr


# Why ------------------------------------------------------------------------------------------------------------------


def test_why_a_tool_is_missing_is_told(stage: Stage) -> None:
    done = stage.run("explain", "--tool", "s_ecko")
    assert (done.returncode, done.stderr) == (1, "")
    assert "did you mean `s.echo`?" in done.stdout
    assert "command not found" in stage.run("explain", "--tool", "bad_x").stdout
    found = stage.run("explain", "--tool", "echo")
    assert found.returncode == 0
    assert "`echo` is `s.echo`" in found.stdout


def test_why_bash_is_missing_is_told(tmp_path: Path) -> None:
    write_config(tmp_path, {"files": {"kind": "builtin", "root": str(tmp_path)}})
    done = trunkline("explain", "--tool", "Bash", cwd=tmp_path)
    assert done.returncode == 1
    assert "Server `files` offers `Bash` only if `tools.allow` has its exact name" in done.stdout
    assert 'hint: write `tools: {allow: ["*", Bash]}` for `files`' in done.stdout


# Whom to ask ----------------------------------------------------------------------------------------------------------


def test_a_url_leads_to_the_gateway_from_anywhere(stage: Stage, tmp_path: Path) -> None:
    for url in (stage.url, f"{stage.url}/mcp", f"127.0.0.1:{stage.gateway.port}", f"localhost:{stage.gateway.port}"):
        assert structured(trunkline("call", "s_echo", "a=1", "--url", url, cwd=tmp_path)) == {"a": "1"}


def test_a_socket_leads_to_it_too(tmp_path: Path) -> None:
    with Gateway(tmp_path, StdioFaults(tmp_path, "s").entry(), socket=str(tmp_path / "s.sock")) as gateway:
        record = next(tmp_path.glob("state/gateways/*/running.json"))
        record.write_text(record.read_text().replace(str(gateway.port), "1"))
        assert structured(trunkline("call", "s_echo", "a=1", cwd=tmp_path)) == {"a": "1"}
        assert "s_echo" in trunkline("tools", cwd=tmp_path).stdout
        assert "ready" in trunkline("servers", cwd=tmp_path).stdout


def test_a_client_learns_of_servers_only_if_it_may(stage: Stage, tmp_path: Path) -> None:
    done = trunkline("servers", "--url", stage.url, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "TL401" in done.stderr
    assert "TRUNKLINE_OPERATOR_TOKEN" in done.stderr
    why = trunkline("explain", "--tool", "x", "--url", stage.url, cwd=tmp_path)
    assert "TRUNKLINE_OPERATOR_TOKEN" in why.stderr
    [token] = stage.folder.glob("state/gateways/*/operator_token")
    env = {"TRUNKLINE_OPERATOR_TOKEN": token.read_text()}
    assert states(trunkline("servers", "--url", stage.url, "--json", cwd=tmp_path, env=env))["s"] == "ready"
    env = {"TRUNKLINE_OPERATOR_TOKEN": "wrong"}
    wrong = trunkline("servers", "--url", stage.url, cwd=tmp_path, env=env)
    assert wrong.returncode == 1
    assert "does not accept the operator's token" in wrong.stderr


def test_with_its_own_tools_a_gateway_tells_every_client(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    with Gateway(inside, StdioFaults(inside, "s").entry(), meta_tools=True) as gateway:
        url = f"http://127.0.0.1:{gateway.port}"
        wait_until(
            lambda: trunkline("servers", "--url", url, cwd=outside).returncode == 0, "the server is ready to a client"
        )
        assert trunkline("servers", cwd=inside).returncode == 0
        assert "list_servers" in trunkline("tools", cwd=inside).stdout
        assert structured(trunkline("call", "list_servers", cwd=inside))["servers"][0]["name"] == "s"


def test_a_token_is_found_in_the_file_or_the_environment_and_a_wrong_one_is_told(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    with Gateway(inside, StdioFaults(inside, "s").entry(), token="let-me-in") as gateway:
        url = f"http://127.0.0.1:{gateway.port}"
        assert structured(trunkline("call", "s_echo", "a=1", cwd=inside)) == {"a": "1"}
        named = trunkline("call", "s_echo", "--url", url, "-c", str(gateway.config), cwd=outside)
        assert named.returncode == 0
        right = trunkline("call", "s_echo", "--url", url, cwd=outside, env={"TRUNKLINE_TOKEN": "let-me-in"})
        assert right.returncode == 0
        for env, said in (({}, "requires a token"), ({"TRUNKLINE_TOKEN": "x"}, "does not accept the token")):
            refused = trunkline("call", "s_echo", "--url", url, cwd=outside, env=env)
            assert (refused.returncode, refused.stdout) == (1, "")
            assert f"error: TL401: {url}/mcp {said}\nhint: set TRUNKLINE_TOKEN" in refused.stderr


def test_nobody_at_the_address_is_told(tmp_path: Path) -> None:
    for command in (["tools"], ["servers"], ["call", "x", "a=1"], ["explain", "--tool", "x"]):
        done = trunkline(*command, "--url", f"http://127.0.0.1:{free_port()}", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert "error: TL207: http://127.0.0.1:" in done.stderr
        assert "hint: is it running?" in done.stderr
    bad = trunkline("tools", "--url", "nonsense", cwd=tmp_path)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "TL104" in bad.stderr


def test_somebody_else_at_the_address_is_told(stage: Stage, tmp_path: Path) -> None:
    elsewhere = trunkline("tools", "--url", f"{stage.url}/healthz", cwd=tmp_path)
    assert elsewhere.returncode == 1
    assert "TL207" in elsewhere.stderr
    with HttpFaults(tmp_path, faults=["html_502"]) as server:
        done = trunkline("tools", "--url", server.url, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert "TL207" in done.stderr


def test_a_host_that_the_gateway_refuses_keeps_its_code(stage: Stage, tmp_path: Path) -> None:
    done = trunkline("tools", "--url", f"http://[::ffff:127.0.0.1]:{stage.gateway.port}", cwd=tmp_path)
    assert done.returncode == 1
    assert "error: TL" in done.stderr


def test_without_a_file_the_gateway_that_runs_is_asked_and_of_several_one_must_be_named(tmp_path: Path) -> None:
    state = tmp_path / ".local" / "state" / "trunkline"
    nowhere = tmp_path / "nowhere"
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in (nowhere, *folders):
        folder.mkdir()
    home = {"HOME": str(tmp_path)}
    nobody = trunkline("tools", cwd=nowhere, env=home)
    assert (nobody.returncode, nobody.stdout) == (2, "")
    assert "no gateway is running" in nobody.stderr
    with Gateway(folders[0], StdioFaults(folders[0], "one").entry(), state_dir=str(state)) as first:
        only = trunkline("call", "one_echo", "a=1", cwd=nowhere, env=home)
        assert structured(only) == {"a": "1"}
        assert only.stderr == f"asking the gateway at http://127.0.0.1:{first.port}/mcp\n"
        with Gateway(folders[1], state_dir=str(state)) as second:
            several = trunkline("tools", cwd=nowhere, env=home)
            assert (several.returncode, several.stdout) == (2, "")
            for gateway in (first, second):
                assert f"http://127.0.0.1:{gateway.port}/mcp" in several.stderr


def test_a_file_that_is_being_edited_does_not_keep_the_gateway_from_answering(tmp_path: Path) -> None:
    state = tmp_path / ".local" / "state" / "trunkline"
    with Gateway(tmp_path, StdioFaults(tmp_path, "s").entry(), state_dir=str(state)) as gateway:
        gateway.config.write_text('{"gateway": {"listn": 1}}')
        done = trunkline("call", "s_echo", "a=1", cwd=tmp_path)
        assert structured(done) == {"a": "1"}
        assert done.stderr.startswith("warning: `trunkline.json` is not trusted; asking")
    trust(gateway.config, environment(tmp_path))
    stopped = trunkline("call", "s_echo", "a=1", cwd=tmp_path)
    assert (stopped.returncode, stopped.stdout) == (2, "")
    assert "trunkline.json:1:14" in stopped.stderr


# A gateway in motion --------------------------------------------------------------------------------------------------


def test_a_server_that_is_still_starting_is_told_so(tmp_path: Path) -> None:
    with Gateway(tmp_path, StdioFaults(tmp_path, "slow", faults=["mute"]).entry(start_timeout=600)):
        done = trunkline("servers", cwd=tmp_path)
        assert done.returncode == 1
        assert done.stdout.splitlines()[1].split()[:2] == ["slow", "starting"]
        assert "it has not answered yet" in done.stdout
        assert "hint: try again in a moment" in done.stderr
        assert "`slow` is starting" in trunkline("explain", "--tool", "slow_echo", cwd=tmp_path).stdout


def test_a_server_that_came_over_the_api_is_told_apart(tmp_path: Path) -> None:
    with HttpFaults(tmp_path, "extra") as server, Gateway(tmp_path, operator_token="op") as gateway:
        body = json.dumps({"name": "extra", "url": server.url}).encode()
        headers = {"Authorization": "Bearer op", "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{gateway.port}/api/mcp/servers"
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=at_most(30)) as reply:
            assert reply.status == 201
        wait_until(lambda: trunkline("servers", cwd=tmp_path).returncode == 0, "it is ready")
        assert "the API" in trunkline("servers", cwd=tmp_path).stdout


def test_a_thousand_tools_are_listed(tmp_path: Path) -> None:
    many = [{"name": f"tool{number:04}", "inputSchema": {"type": "object"}} for number in range(1000)]
    with Gateway(tmp_path, StdioFaults(tmp_path, "s", tools=many).entry(), start_wait=START_WAIT_S):
        assert len(trunkline("tools", cwd=tmp_path).stdout.splitlines()) > 1000
        assert trunkline("tools", "tool0007", cwd=tmp_path).stdout.splitlines()[1] == "s_tool0007"


# No gateway -----------------------------------------------------------------------------------------------------------


def test_without_a_gateway_servers_are_started_for_the_moment_and_ended(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s", tools=[MIX])
    other = StdioFaults(tmp_path, "other")
    write_config(tmp_path, server.entry(), other.entry(), BAD)
    done = trunkline("servers", cwd=tmp_path)
    assert done.returncode == 1
    assert "2 ready, 1 down" in done.stderr
    assert "other_echo" in trunkline("tools", cwd=tmp_path).stdout
    assert server.pids() == []
    for name in ("s_mix", "s.mix"):
        assert structured(trunkline("call", name, "count=5", cwd=tmp_path)) == {"count": 5}
    assert len(server.events("start")) == 4
    assert len(other.events("start")) == 2
    assert "did you mean" in trunkline("explain", "--tool", "s_ecko", cwd=tmp_path).stdout
    assert trunkline("call", "s_fail", cwd=tmp_path).returncode == 1
    assert trunkline("call", "bad.x", cwd=tmp_path).returncode == 1
    assert trunkline("call", "s_mix", "count=five", cwd=tmp_path).returncode == 2
    assert server.pids() == []


def test_a_servers_output_on_stderr_stays_out_of_the_way(tmp_path: Path) -> None:
    write_config(tmp_path, StdioFaults(tmp_path, "s", faults=["stderr_flood", "banner"]).entry())
    done = trunkline("call", "s_echo", "a=1", cwd=tmp_path)
    assert (structured(done), done.stderr) == ({"a": "1"}, "")
