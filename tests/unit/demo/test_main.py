from __future__ import annotations

from pathlib import Path

import pytest

from trunkline.demo.__main__ import TOOLBOXES, load_toolbox


@pytest.mark.parametrize("name", TOOLBOXES)
def test_every_server_of_the_table_is_complete(name: str) -> None:
    box = load_toolbox(name)
    assert box.name == name
    assert box.title and box.instructions
    for tool in box.tools.values():
        assert tool.title and tool.description.endswith(".")
        described = {key for key, schema in tool.arguments.items() if schema.get("description")}
        assert described == tool.arguments.keys()


def test_every_server_is_in_the_demo_s_configuration() -> None:
    import trunkline.demo as package

    text = (Path(package.__file__).parent / "trunkline.yaml").read_text()
    assert all(f"\n  {name}:\n" in text for name in TOOLBOXES)
