"""The choice of the gateway that a command asks, and of the token it sends."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.trust import trust

from trunkline.cli.client.target import RemoteTarget, find_target
from trunkline.config.settings import Settings
from trunkline.core.errors import BAD_VALUE, CONFIG_UNREADABLE, GatewayError
from trunkline.runtime.gateway_records import RunningGateway, announce_running
from trunkline.runtime.state_files import gateway_key, gateways_folder

URL = "http://127.0.0.1:4791/mcp"


class Place:
    """A home, a working folder, and gateways that say that they run."""

    def __init__(self, home: Path, stack: contextlib.ExitStack) -> None:
        self.home = home
        self.usual = home / ".local" / "state" / "trunkline"
        self._stack = stack

    def file(self, text: str = "", name: str = "trunkline.yaml") -> Path:
        path = self.home / name
        path.write_text(text)
        with contextlib.suppress(GatewayError):  # what cannot be read cannot be trusted
            trust(path, {"HOME": str(self.home)})
        return path

    def gateway(
        self, config: Path, url: str = URL, *, state_dir: Path | None = None, token: str = "", socket: str = ""
    ) -> None:
        folder = gateways_folder(state_dir or self.usual) / gateway_key(config)
        held = announce_running(
            folder, RunningGateway(1, url, str(config), "1", f"2026-01-01T00:00:{len(url):02}Z", socket)
        )
        assert held.reason == ""
        self._stack.callback(held.close)
        if token:
            (folder / "operator_token").write_text(token)
            (folder / "operator_token").chmod(0o600)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for variable in ("TRUNKLINE_TOKEN", "TRUNKLINE_OPERATOR_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    with contextlib.ExitStack() as stack:
        yield Place(tmp_path, stack)


def refused(config: Path | None = None, url: str | None = None) -> GatewayError:
    with pytest.raises(GatewayError) as error:
        find_target(config, url)
    return error.value


# By the file ----------------------------------------------------------------------------------------------------------


def test_without_a_gateway_the_servers_of_the_file_are_started(place: Place) -> None:
    path = place.file("mcpServers: {a: {command: cat}}")
    for config in (path, Path("trunkline.yaml"), None):
        whom = find_target(config, None)
        assert isinstance(whom, Settings)
        assert list(whom.sources) == ["a"]


def test_a_gateway_that_runs_for_the_file_is_asked(place: Place) -> None:
    place.gateway(place.file(), token="made")
    for config in (place.home / "trunkline.yaml", Path("trunkline.yaml"), None):
        assert find_target(config, None) == RemoteTarget(URL, "", "", "made")


def test_its_state_may_be_anywhere(place: Place) -> None:
    place.gateway(place.file("gateway: {state_dir: mine}"), state_dir=place.home / "mine", token="made")
    assert find_target(None, None) == RemoteTarget(URL, "", "", "made")


def test_a_gateway_for_another_file_is_not_asked(place: Place) -> None:
    place.file()
    place.gateway(place.file(name="other.yaml"))
    assert isinstance(find_target(None, None), Settings)


def test_the_tokens_of_the_file_come_first_and_those_of_the_environment_last(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_TOKEN", " env ")
    monkeypatch.setenv("TRUNKLINE_OPERATOR_TOKEN", "env-op")
    plain = place.file(name="plain.yaml")
    place.gateway(plain)
    assert find_target(plain, None) == RemoteTarget(URL, "", "env", "env-op")
    made = place.file(name="made.yaml")
    place.gateway(made, token="made")
    assert find_target(made, None) == RemoteTarget(URL, "", "env", "made")
    given = place.file("gateway: {token: '${A}', operator_token: '${B}'}", name="given.yaml")
    monkeypatch.setenv("A", "file")
    monkeypatch.setenv("B", "file-op")
    place.gateway(given, token="made")
    assert find_target(given, None) == RemoteTarget(URL, "", "file", "file-op")


def test_a_socket_is_used_while_it_is_there(place: Place) -> None:
    path = place.file()
    place.gateway(path, socket=str(place.home / "s"))
    assert find_target(None, None) == RemoteTarget(URL)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place.home / "s"))
        assert find_target(None, None) == RemoteTarget(URL, str(place.home / "s"))


@pytest.mark.parametrize("text", ["gateway: {listn: 1}", "gateway: {", "\0"])
def test_a_file_that_was_broken_meanwhile_does_not_keep_its_gateway_from_answering(
    place: Place, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = place.file()
    place.gateway(path, token="made")
    path.write_text(text)
    assert find_target(None, None) == RemoteTarget(URL, "", "", "made")
    out, err = capsys.readouterr()
    assert out == ""
    known = "is not trusted" if text.startswith("gateway: {listn") else "has errors"
    assert err.startswith(f"warning: `trunkline.yaml` {known}")
    assert "trunkline check" in err


def test_a_file_that_was_removed_meanwhile_neither(place: Place) -> None:
    path = place.file()
    place.gateway(path)
    path.unlink()
    assert find_target(path, None) == RemoteTarget(URL)


def test_a_broken_file_without_a_gateway_ends_the_program_as_everywhere(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.file("gateway: {listn: 1}")
    with pytest.raises(SystemExit) as end:
        find_target(None, None)
    assert end.value.code == 2
    assert "trunkline.yaml:1:11" in capsys.readouterr().err


def test_warnings_about_the_file_are_the_business_of_the_gateway_that_runs(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.gateway(place.file("mcpServers: {a: {command: cat, autoApprove: [x]}}"))
    find_target(None, None)
    assert capsys.readouterr() == ("", "")


# Without a file -------------------------------------------------------------------------------------------------------


def test_without_a_file_the_only_gateway_that_runs_is_asked(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = place.home / "elsewhere"
    elsewhere.mkdir()
    place.gateway(elsewhere / "trunkline.yaml", token="made")
    assert find_target(None, None) == RemoteTarget(URL, "", "", "made")
    assert capsys.readouterr().err == f"asking the gateway at {URL}\n"


def test_without_a_file_and_with_several_gateways_one_must_be_named(place: Place) -> None:
    place.gateway(place.home / "a" / "x.yaml")
    place.gateway(place.home / "b" / "x.yaml", "http://127.0.0.1:5000/mcp")
    problem = refused().problem
    assert problem.code is CONFIG_UNREADABLE
    assert URL in problem.hint
    assert "http://127.0.0.1:5000/mcp" in problem.hint


def test_without_a_file_and_without_a_gateway_the_ways_are_shown(place: Place) -> None:
    problem = refused().problem
    assert problem.code is CONFIG_UNREADABLE
    for way in ("trunkline add", "trunkline demo", "-c FILE", "--url"):
        assert way in problem.hint


# By its URL -----------------------------------------------------------------------------------------------------------


def test_a_url_needs_no_file_and_no_path(place: Place) -> None:
    assert find_target(None, "http://example.com") == RemoteTarget("http://example.com/mcp")
    assert find_target(None, "127.0.0.1:9") == RemoteTarget("http://127.0.0.1:9/mcp")
    assert find_target(None, "https://example.com/gw/mcp") == RemoteTarget("https://example.com/gw/mcp")


@pytest.mark.parametrize("url", ["", "foo", "ftp://x", "http://", "http://[::1", "http://h:99999", "http://a b", "h:0"])
def test_what_is_no_url_is_refused(place: Place, url: str) -> None:
    assert refused(url=url).problem.code is BAD_VALUE


def test_a_gateway_elsewhere_gets_the_tokens_of_the_environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_TOKEN", "env")
    monkeypatch.setenv("TRUNKLINE_OPERATOR_TOKEN", "env-op")
    place.gateway(place.file("gateway: {token: '${HOME}'}"), token="made")
    assert find_target(None, "http://example.com/mcp") == RemoteTarget("http://example.com/mcp", "", "env", "env-op")


def test_a_gateway_that_runs_here_is_known_by_its_url(place: Place) -> None:
    place.gateway(place.home / "somewhere" / "trunkline.yaml", token="made")
    for url in (URL, "http://127.0.0.1:4791", "127.0.0.1:4791", "http://localhost:4791/mcp"):
        assert find_target(None, url) == RemoteTarget(URL, "", "", "made"), url


@pytest.mark.law
def test_its_token_is_shown_to_nobody_else(place: Place) -> None:
    place.gateway(place.home / "somewhere" / "trunkline.yaml", token="made")
    for url in ("http://127.0.0.1:4792/mcp", "https://localhost:4791/mcp", "http://localhost:4791/x"):
        assert find_target(None, url) == RemoteTarget(url)


def test_a_file_that_is_named_with_the_url_gives_its_tokens(place: Place) -> None:
    path = place.file("gateway: {token: file-token, operator_token: file-operator}", name="other.yaml")
    assert find_target(path, "https://example.com/mcp") == RemoteTarget(
        "https://example.com/mcp", "", "file-token", "file-operator"
    )


@pytest.mark.law
def test_a_file_that_nobody_named_gives_them_to_its_own_address_only(place: Place) -> None:
    place.file("gateway: {token: secret, operator_token: op, listen: '127.0.0.1:4791'}")
    assert find_target(None, URL) == RemoteTarget(URL, "", "secret", "op")
    for url in ("http://localhost:4791/mcp", "http://[::1]:4791/mcp", "http://127.0.0.1:4792/mcp"):
        assert find_target(None, url) == RemoteTarget(url), "who knows who listens there"
    for url in ("http://example.com:4791/mcp", "https://127.0.0.1:4791/mcp"):
        assert find_target(None, url) == RemoteTarget(url)


def test_a_broken_file_in_the_way_of_a_url_does_not_matter(place: Place) -> None:
    place.file("gateway: {")
    assert find_target(None, URL) == RemoteTarget(URL)
