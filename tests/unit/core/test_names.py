from __future__ import annotations

import pytest

from trunkline.core.names import (
    exposed_name,
    is_source_name,
    slug,
    spellings,
    split_address,
    was_altered,
    without_own_prefix,
)


@pytest.mark.parametrize("name", ["a", "A-b_9", "-", "_", "server-1"])
def test_letters_digits_dash_and_underscore_make_a_source_name(name: str) -> None:
    assert is_source_name(name)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a/b", "ä", "a\n", "a:b", "٣"])
def test_anything_else_is_no_source_name(name: str) -> None:
    assert not is_source_name(name)


@pytest.mark.parametrize(
    "text, made",
    [
        ("My Server", "My_Server"),
        ("@scope/pkg", "scope_pkg"),
        ("a.b", "a_b"),
        ("…", "server"),
        ("", "server"),
        ("_", "server"),
    ],
)
def test_any_text_gives_a_source_name(text: str, made: str) -> None:
    assert slug(text) == made
    assert is_source_name(made)


@pytest.mark.parametrize(
    "address, parts",
    [
        ("a.b", ("a", "b")),
        ("a.b.c", ("a", "b.c")),
        ("a..b", ("a", ".b")),
        ("a.b.", ("a", "b.")),
        ("ab", None),
        (".b", None),
        ("a.", None),
        (".", None),
        ("", None),
    ],
)
def test_the_first_dot_ends_the_source(address: str, parts: tuple[str, str] | None) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "given, left",
    [
        ("trunkline.a_b", "a_b"),
        ("toolhive-gateway.a_b", "a_b"),
        ("trunkline.trunkline.a", "trunkline.a"),
        ("trunklinea", "trunklinea"),
        ("Trunkline.a", "Trunkline.a"),
        ("a.trunkline.b", "a.trunkline.b"),
    ],
)
def test_our_own_prefix_is_taken_off_once_and_only_at_the_front(given: str, left: str) -> None:
    assert without_own_prefix(given) == left


def test_a_short_plain_name_is_shown_behind_its_prefix() -> None:
    assert exposed_name("fs", "read", "fs.read", 48) == "fs_read"
    assert exposed_name("", "read", "fs.read", 48) == "read"


def test_characters_that_models_do_not_take_become_underscores() -> None:
    assert exposed_name("fs", "a.b/ç d", "fs.a.b/ç d", 48) == "fs_a_b___d"
    assert was_altered("fs", "a.b")
    assert was_altered("f.s", "a")
    assert not was_altered("fs", "a_b-9")
    assert not was_altered("", "ab")


def test_a_name_that_fits_exactly_is_not_cut() -> None:
    assert exposed_name("p", "x" * 14, "p.x", 16) == "p_" + "x" * 14
    cut = exposed_name("p", "x" * 15, "p." + "x" * 15, 16)
    assert len(cut) == 16
    assert cut.startswith("p_xxxxxxx_")


def test_the_hash_is_of_the_address_so_it_stays_the_same_from_run_to_run() -> None:
    assert exposed_name("a", "x.y", "a.x.y", 48, force_hash=True) == "a_x_y_92eaf4"
    assert exposed_name("a", "x_y", "a.x_y", 48, force_hash=True) != "a_x_y_92eaf4"


def test_a_tool_has_four_spellings_beside_its_exposed_and_bare_names() -> None:
    assert spellings("s", "t") == ("s.t", "s_t", "s__t", "s:t")
