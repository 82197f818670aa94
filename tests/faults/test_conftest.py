"""What tests/conftest.py promises: a leak fails the test that leaked, and in CI a skip is a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import at_most

ROOT = Path(__file__).parents[2]

IMPATIENT = "import tests.conftest\ntests.conftest.LEAK_PATIENCE_S = 0.5\n"
LEAKS = {
    "process": "import subprocess\ndef test_it(tmp_path):\n    global p\n    p = subprocess.Popen(['sleep', '30'])\n",
    "orphan": "import subprocess\ndef test_it():\n    subprocess.run(['sh', '-c', 'setsid sleep 30 & exit 0'])\n",
    "file": "import os\ndef test_it():\n    os.open('/dev/null', os.O_RDONLY)\n",
    "thread": "import threading, time\ndef test_it():\n    threading.Thread(target=time.sleep, args=(3,)).start()\n",
    "task": (
        "import asyncio\nasync def test_it():\n    global t\n"
        "    t = asyncio.get_running_loop().create_task(asyncio.sleep(30))\n"
    ),
}


def run_pytest(folder: Path, source: str, *, ci: bool = False) -> subprocess.CompletedProcess[str]:
    (folder / "test_sample.py").write_text(IMPATIENT + source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"CI": "true" if ci else "", "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [*command, "--rootdir", str(folder), "test_sample.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=at_most(60),
    )


@pytest.mark.parametrize("kind", sorted(LEAKS))
def test_a_leak_fails_the_test_that_leaked(tmp_path: Path, kind: str) -> None:
    ended = run_pytest(tmp_path, LEAKS[kind])
    assert ended.returncode == 1
    assert "left behind after" in ended.stdout or "without an owner" in ended.stdout


def test_a_tidy_test_passes(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, "import subprocess\ndef test_it():\n    subprocess.run(['true'])\n")
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("where", ["test", "module"])
def test_a_skip_is_a_failure_in_ci_only(tmp_path: Path, where: str) -> None:
    skip = {
        "test": "import pytest\n@pytest.mark.skip(reason='why not')\ndef test_it():\n    pass\n",
        "module": "import pytest\npytest.skip('why not', allow_module_level=True)\n",
    }[where]
    assert run_pytest(tmp_path, skip).returncode in (0, 5)
    in_ci = run_pytest(tmp_path, skip, ci=True)
    assert in_ci.returncode in (1, 2), in_ci.stdout
    assert "why not" in in_ci.stdout


def test_what_is_optional_may_be_skipped_in_ci_too(tmp_path: Path) -> None:
    source = (
        "import pytest\n@pytest.mark.filterwarnings('ignore')\n"
        "@pytest.mark.optional\n@pytest.mark.skip(reason='not here')\ndef test_it():\n    pass\n"
    )
    assert run_pytest(tmp_path, source, ci=True).returncode == 0


def test_an_expected_failure_is_no_skip(tmp_path: Path) -> None:
    source = "import pytest\n@pytest.mark.xfail\ndef test_it():\n    assert False\n"
    assert run_pytest(tmp_path, source, ci=True).returncode == 0
