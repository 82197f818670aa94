"""Every command in the documentation prints what the page shows."""

from __future__ import annotations

import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.support.docs_console import Console, examples, matches
from tests.support.docs_pages import ROOT, WITH_EXAMPLES, blocks, title_of
from tests.support.waiting import at_most

ABOUT_USING_IT = (
    "getting-started",
    "commands",
    "troubleshooting",
    "frontends/http",
    "frontends/stdio",
    "operating",
    "search",
)
WITH_COMMANDS = [page for page in WITH_EXAMPLES if blocks(page, "console")]


@pytest.mark.slow
@pytest.mark.needs("bash")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=title_of)
def test_the_commands_of_a_page_print_what_it_shows(page: Path, tmp_path: Path) -> None:
    with Console(tmp_path) as console:
        assert console.play(page) > 0


def test_the_pages_about_using_it_have_commands() -> None:
    names = {title_of(page) for page in WITH_COMMANDS}
    assert names >= {"README.md", *(f"docs/{name}.md" for name in ABOUT_USING_IT)}


# -- the test itself ---------------------------------------------------------------------------------------------------


def test_commands_are_told_from_what_they_print() -> None:
    assert examples("$ one \\\n    two\nout\n\n$ three\n") == [("one two", ["out"]), ("three", [])]


def test_machines_without_curl_have_enough_of_it() -> None:
    class Echo(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(409)
            self.end_headers()
            self.wfile.write(body + self.headers["X-Name"].encode())

        def log_message(self, *_: object) -> None:
            """Not a word."""

    with HTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        command = [sys.executable, str(ROOT / "tools" / "terminal" / "curl.py"), "-s", "-X", "PUT", "-H", "X-Name: me"]
        url = f"http://127.0.0.1:{server.server_port}/"
        run = subprocess.run([*command, "-d", "by ", url], capture_output=True, text=True, timeout=at_most(60))
        thread.join(at_most(60))
    assert (run.stdout, run.stderr) == ("by me", "")


@pytest.mark.parametrize(
    ("shown", "printed", "fits"),
    [
        (["a … c"], ["a b c"], True),
        (["a … c"], ["a b d"], False),
        (["a"], ["a", "b"], False),
        (["a", "…"], ["a", "b", "c"], True),
        (["…", "c"], ["a", "b", "c"], True),
        (["…", "d"], ["a", "b", "c"], False),
    ],
)
def test_an_ellipsis_stands_for_any_text_or_lines(shown: list[str], printed: list[str], fits: bool) -> None:
    assert matches(shown, printed) is fits
