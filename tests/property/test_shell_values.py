"""Values in commands: real shells receive exactly the value, wherever it stands, and run nothing else."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.chunks import examples
from tests.support.waiting import at_most

from trunkline.agents.workflow.shell import shell_template
from trunkline.agents.workflow.template import parse_template

X = "{{.inputs.x}}"
SHELLS = [path for path in ("/bin/sh", shutil.which("dash"), shutil.which("bash")) if path is not None]
NASTY = st.sampled_from(
    [
        *("'", '"', "\\", "$", "`", "$(touch ran)", "`touch ran`", "; touch ran;", "\n", "\ntouch ran\n", "\t", " "),
        *("EOF", "\nEOF\n", "EOF\ntouch ran\n", "#", "!", "!!", "*", "~", "{a,b}", "-n", "--", "%s", "\\n", "'\\''"),
        *(
            "$x",
            "${x}",
            "$((1+1))",
            "&& touch ran",
            "| touch ran",
            "> ran",
            "<<EOF",
            "é",
            "\u4e2d",
            "\U0001f600",
            "=",
            "if",
        ),
        *("a[$(touch ran)]", "\r", "\\\n", "[", "]", "(", ")", "}", "\x07"),
    ]
)
# not `_`: where it begins a line of a document, dash loses the first byte of an `é` after it
PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0_"), max_size=4)
VALUES = st.lists(NASTY | PLAIN, max_size=6).map("".join)

_BETWEEN = "\nprintf '\\000'\n"
Placed = tuple[str, Callable[[str], str]]
PLACES: list[Placed] = [
    (f"printf %s {X}", str),
    (f"printf '<%s>' {X} a{X}b", lambda v: f"<{v}><a{v}b>"),
    (f'printf %s "{X}"', str),
    (f'a=1; printf %s "$a{X}$a"', lambda v: f"1{v}1"),
    (f"printf %s '{X}'", str),
    (f"printf %s '\\{X}'\"'{X}'\"", lambda v: f"\\{v}'{v}'"),
    (f'v={X}; printf %s "$v"', str),
    (f'v="a {X}" && printf %s "$v"', lambda v: f"a {v}"),
    (f'printf %s "$(printf %s. {X})"', lambda v: f"{v}."),
    (f'printf %s "$(printf %s. "a {X}" \')\')"', lambda v: f"a {v}.)."),
    (f"printf %s $(true) \"$(printf '%s.' '{X}')\"", lambda v: f"{v}."),
    (f"# {X}\nprintf %s a # {X}\n", lambda v: "a"),
    (f"printf a#%s {X}", lambda v: f"a#{v}"),
    (f"cat <<EOF\n{X}\nEOF\n", lambda v: f"{v}\n"),
    (f"a=1; cat <<EOF && printf %s {X}\n$a \"{X}'\n${{a}} $(echo b) E{X}\nEOF\n", lambda v: f"1 \"{v}'\n1 b E{v}\n{v}"),
    (f"cat <<'EOF'; printf %s {X}\n$a\\{X}{X}\nEOF\n", lambda v: f"$a\\{v}{v}\n{v}"),
    (f'cat <<"E" <<\\F\n{X}\nE\n{X}`\nF\n', lambda v: f"{v}`\n"),
    (f'printf %s "$(cat <<EOF\n{X}.\nEOF\n)"', lambda v: f"{v}."),
    (f"(printf %s {X}); {{ printf %s {X}; }}", lambda v: v + v),
    (f"case {X} in {X}) printf yes;; *) printf no;; esac", lambda v: "yes"),
    (f'test {X} = "{X}" && printf yes', lambda v: "yes"),
    (f"for v in {X} b; do printf '<%s>' \"$v\"; done", lambda v: f"<{v}><b>"),
    (f'f() {{ printf %s "$1"; }}; f "{X}"\'{X}\'{X}', lambda v: v * 3),
    (f'printf %s "${{none:-b}}{X}" $((1 + 2))', lambda v: f"b{v}3"),
    (f"printf %s `echo a` {X}", lambda v: f"a{v}"),
    (f"env -i A={X} /bin/sh -c 'printf %s \"$A\"'", str),
]


@pytest.mark.parametrize("shell", SHELLS)
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_shell_receives_exactly_the_value_and_runs_nothing_else(
    shell: str, tmp_path: Path, data: st.DataObject
) -> None:
    value = data.draw(VALUES)
    output = run(shell, _BETWEEN.join(text for text, _ in PLACES), value, tmp_path)
    for (text, expected), one in zip(PLACES, output.split("\0"), strict=True):
        assert one == expected(value), text


def run(shell: str, text: str, value: str, folder: Path) -> str:
    template, faults = parse_template(text)
    command = shell_template(template)
    assert not faults
    assert not [slot for slot in command.references() if slot.refused]
    argv = [shell, "-c", command.render({"x": value}, {})]
    env = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(argv, cwd=folder, capture_output=True, timeout=at_most(30), env=env, check=False)
    assert not list(folder.iterdir())
    return done.stdout.decode()


@given(st.lists(NASTY | st.just(X), max_size=12).map("".join))
@settings(max_examples=examples(300), deadline=None)
def test_any_command_is_followed_to_its_end(text: str) -> None:
    command = shell_template(parse_template(text)[0])
    assert len(command.references()) == text.count(X)


PIECES = st.sampled_from(
    [
        *("'", '"', "\\", "`", "$", "$(", ")", "(", "((", "))", "$((", "${a:-", "${a}", "}", "{", "\n", " ", "#", " #"),
        *("<<EOF", "<<'EOF'", "<<-EOF", "\nEOF\n", "echo ", "cat ", "case x in", " x) ", ";;", " esac", ";", "&&", "|"),
        *(
            " [[ ",
            " ]]",
            " -eq ",
            " -v ",
            "a[",
            "]=1",
            "a=(",
            "x=",
            "a",
            "EOF",
            "\\\n",
            "$'",
            "<(",
            "<<<",
            ">&",
            "2>&1",
        ),
        *("if true; then ", " fi", "f() {", "$[", "]", "~", "*", "=", "1", "<", "\t", "$a"),
        *(
            "declare ",
            "declare -a ",
            "export ",
            "IFS= ",
            "read ",
            "unset ",
            "printf -v ",
            "[ ",
            "test ",
            "$\\\n",
            "for ((",
        ),
    ]
)


@pytest.mark.law
@pytest.mark.parametrize("shell", SHELLS)
@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(before=st.lists(PIECES, max_size=6), after=st.lists(PIECES, max_size=4), value=VALUES)
def test_no_value_is_run_wherever_a_command_has_it(
    shell: str, tmp_path: Path, before: list[str], after: list[str], value: str
) -> None:
    command = shell_template(parse_template("".join([*before, X, *after]))[0])
    if any(slot.refused for slot in command.references()):
        return
    subprocess.run(
        [shell, "-c", command.render({"x": value}, {})],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=at_most(30),
        env={"PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert not (tmp_path / "ran").exists()
