from __future__ import annotations

from pathlib import Path

import pytest

from trunkline.agents.probe.probe import ProbeResult, ProbeStore


def test_the_result_of_a_probe_is_known_for_that_version_only(tmp_path: Path) -> None:
    store = ProbeStore(tmp_path / "state")
    store.put("codex", "1.0.0", ProbeResult())
    store.put("codex", "2.0.0", ProbeResult(own_tools=("exec",)))
    again = ProbeStore(tmp_path / "state")
    assert again.get("codex", "1.0.0") == ProbeResult()
    assert again.get("codex", "2.0.0") == ProbeResult(own_tools=("exec",))
    assert again.get("codex", "3.0.0") is None
    assert again.get("gemini", "1.0.0") is None


@pytest.mark.parametrize("written", [b"{", b'{"\xff": []}'])
def test_a_file_that_makes_no_sense_is_as_good_as_none(tmp_path: Path, written: bytes) -> None:
    store = ProbeStore(tmp_path)
    store.put("codex", "1.0.0", ProbeResult())
    (file,) = tmp_path.iterdir()
    file.write_bytes(written)
    assert store.get("codex", "1.0.0") is None
    store.put("codex", "1.0.0", ProbeResult())
    assert store.get("codex", "1.0.0") == ProbeResult()


def test_where_nothing_can_be_written_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = ProbeStore(tmp_path / "file" / "state")
    store.put("codex", "1.0.0", ProbeResult())
    assert store.get("codex", "1.0.0") is None
