from __future__ import annotations

from pathlib import Path

from tools.check_sizes import ROOT, too_long


def plant(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def function(name: str, lines: int) -> str:
    return f"async def {name}():\n" + "    pass\n" * (lines - 1)


def test_the_project_keeps_its_limits():
    assert list(too_long(ROOT)) == []


def test_a_function_over_the_limit_is_named_with_its_place(tmp_path):
    text = "\n" + function("fits", 60) + "class Holder:\n    def grown(self):\n" + "        pass\n" * 60
    plant(tmp_path, "src/pack/long.py", text)
    assert list(too_long(tmp_path)) == ["src/pack/long.py:63: `grown` has 61 lines, allowed are 60"]


def test_a_module_over_the_limit_is_named(tmp_path):
    plant(tmp_path, "src/fits.py", "x = 1\n" * 500)
    plant(tmp_path, "src/grown.py", "x = 1\n" * 501)
    plant(tmp_path, "tests/fits.py", function("long_story", 800))
    plant(tmp_path, "tests/grown.py", "x = 1\n" * 801)
    plant(tmp_path, "bench/grown.py", "x = 1\n" * 801)
    assert list(too_long(tmp_path)) == [
        "src/grown.py:1: module of 501 lines, allowed are 500",
        "tests/grown.py:1: module of 801 lines, allowed are 800",
        "bench/grown.py:1: module of 801 lines, allowed are 800",
    ]
