"""Positions in the text of a configuration."""

from __future__ import annotations

from trunkline.config.edit.outline import Outline, outline_json, outline_yaml

YAML = """\
# top
a:   # comment
  "b c": &x {d: [1, 2], e: 'f'}   # more
  g: |
    text

    more

  h: *x
  i:
  j:
    - 1
    - k: l   # end
m: n
"""


def cut(text: str, value: Outline) -> dict[str, str]:
    """The text of every member's value, by the path of its keys."""
    found: dict[str, str] = {}
    for member in value.members:
        found[member.key] = text[member.value.start : member.value.end]
        found |= {f"{member.key}/{path}": part for path, part in cut(text, member.value).items()}
    return found


def test_yaml_values_end_where_their_text_ends() -> None:
    assert cut(YAML, outline_yaml(YAML)) == {
        "a": YAML[YAML.index('"b c"') : YAML.index("   # end")],
        "a/b c": "&x {d: [1, 2], e: 'f'}",
        "a/b c/d": "[1, 2]",
        "a/b c/e": "'f'",
        "a/g": "|\n    text\n\n    more",
        "a/h": "*x",
        "a/i": "",
        "a/j": "- 1\n    - k: l",
        "m": "n",
    }


def test_keys_have_places_too() -> None:
    member = outline_yaml(YAML).members[0].value.members[0]
    assert YAML[member.start : member.key_end] == '"b c"'
    assert [m.value.style for m in outline_yaml(YAML).members[0].value.members] == ["flow", *["other"] * 4]


def test_places_are_counted_in_characters() -> None:
    text = "é: {ü: '😀'}\r\n\u4e2d: [😀]\r\n"
    assert cut(text, outline_yaml(text)) == {"é": "{ü: '😀'}", "é/ü": "'😀'", "\u4e2d": "[😀]"}


JSON = """\
{
  // {"not": "this"}
  "a": {"b\\u0020c": [1, {"d": 2}], /* , */ "e": "}\\"{" },
  "f": null,
}
"""


def test_json_values_end_where_their_text_ends() -> None:
    assert cut(JSON, outline_json(JSON)) == {
        "a": '{"b\\u0020c": [1, {"d": 2}], /* , */ "e": "}\\"{" }',
        "a/b c": '[1, {"d": 2}]',
        "a/e": '"}\\"{"',
        "f": "null",
    }


def test_a_file_of_nothing_is_an_empty_place_at_its_end() -> None:
    for text in ("", "# comment\n", " \n"):
        value = outline_yaml(text)
        assert (value.start, value.end, value.members) == (len(text), len(text), [])
    assert outline_json("\n").start == 1
