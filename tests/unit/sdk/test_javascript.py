"""The JavaScript client's own tests, under Node's own test runner."""

from __future__ import annotations

import re
import subprocess

from tests.support.dialin_apps.program import NODE
from tests.support.docs_pages import ROOT
from tests.support.waiting import at_most

FOLDER = ROOT / "clients" / "javascript"


def test_its_own_tests_pass() -> None:
    command = [NODE, "--test", "--test-reporter=tap", str(FOLDER / "trunkline-app.test.mjs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=at_most(100))
    assert done.returncode == 0, done.stdout + done.stderr
    (passed,) = re.findall(r"^# pass (\d+)$", done.stdout, re.MULTILINE)
    assert int(passed) >= 9


def test_it_needs_nothing_but_node() -> None:
    text = (FOLDER / "trunkline-app.mjs").read_text(encoding="utf-8")
    imported = re.findall(r'^import .* from "(.+)";$', text, re.MULTILINE)
    assert imported
    assert all(name.startswith("node:") for name in imported)
    assert "require(" not in text
    assert "import(" not in text
