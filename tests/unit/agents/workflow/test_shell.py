"""The position of a reference in a command, and positions where no quoting is safe."""

from __future__ import annotations

import pytest
from tests.support.workflow_files import codes, found, load_states, severities, state

from trunkline.agents.workflow.document import CommandState
from trunkline.agents.workflow.load import LoadedWorkflow
from trunkline.agents.workflow.shell import shell_template
from trunkline.agents.workflow.template import parse_template

X = "{{.inputs.x}}"


def command(text: str, inputs: str = "[{name: x}]") -> LoadedWorkflow:
    body = text.replace("\n", "\n    ")
    return load_states(f"a:\n  type: step\n  command: |-\n    {body}\n", inputs=inputs)


def rendered(text: str, value: str) -> str:
    return shell_template(parse_template(text)[0], numbers=["x"]).render({"x": value}, {})


@pytest.mark.parametrize(
    "text",
    [
        f"echo `cat {X}`",
        f'echo "`cat {X}`"',
        f'echo "${{A:-{X}}}"',
        f"echo ${{A:-{X}}}",
        f"echo $(({X} + 1))",
        f'echo "$(({X} + 1))"',
        f"echo $[{X} + 1]",
        f"(({X} > 1))",
        f"[[ {X} -eq 1 ]]",
        f'[[ a == b || "{X}" -gt 1 ]]',
        f"a[{X}]=1",
        f'a["{X}"]=1',
        f"[ -v {X} ]",
        f"read {X}",
        f"if true; then unset '{X}'; fi",
        f'let "{X}"',
        f"printf -v {X} a",
        f"declare -i a={X}",
        f"export {X}=1",
        f"IFS= read -r {X}",
        f"IFS=', ' 2>/dev/null read {X}",
        f"command -p read {X}",
        f"case a in a) read {X};; esac",
        f"\\unset {X}",
        f"$SUDO unset {X}",
        f'unset "$(echo {X})"',
        f'declare "{X}=1"',
        f'declare "v_{X}=1"',
        f"declare v_{X}=1",
        f"declare a[{X}]=1",
        f"declare -a a={X}",
        f'declare -a "a=({X})"',
        f"a=(1); declare a={X}",
        f"mapfile -t a < b; declare a={X}",
        f'[ "$a" = "b;c" -o -v {X} ]',
        f"local -n a={X}",
        f"declare -i a; a={X}",
        f"declare -i a=$(cat {X})",
        f"RANDOM={X}",
        f"a=([{X}]=1)",
        f"a=(b\n[{X}]=1)",
        f"a[b[0]+{X}]=1",
        f"A=1 a[ {X} ]=1",
        f"[ -n a -a -v {X} ]",
        f"test ! -v '{X}'",
        f"[[ ${{a[b[0]]}} -eq {X} ]]",
        f'[[ a == b && "a && {X}" -eq 1 ]]',
        f"echo a >&{X}",
        f'echo a 2>&"{X}"',
        f"echo ${X}",
        f'echo "${X}"',
        f"echo \\{X}",
        f'echo "\\{X}"',
        f"echo $'{X}'",
        f"cat <<{X}\n{X}\n{X}",
        f"cat <<-EOF\n\t{X}\nEOF",
        f"cat <<EOF\n${X}\nEOF",
        f"cat <<EOF\n$a{X}\nEOF",
        f"cat <<EOF\n\\{X}\nEOF",
        f"cat <<EOF\n$(cat {X})\nEOF",
        f"cat <<EOF\n`cat {X}`\nEOF",
        f"cat <<EOF\n${{a:-{X}}}\nEOF",
    ],
)
def test_a_value_that_no_quotes_make_safe_is_refused(text: str) -> None:
    assert set(codes(command(text))) == {"TL607"}


@pytest.mark.parametrize(
    "before",
    [
        '"${a:-"b"}"',
        "${a:-$(b)}",
        "$[1]",
        "$((1 + $(b)))",
        "((a) | b)",
        "$(case a in a) b;; esac)",
        "$'a\\'b'",
        "$(cat <<EOF)\nEOF\n",
        'cat <<EOF "\n"\nEOF\n',
        "cat <<EOF $(\n)\nEOF\n",
        "cat <<EOF\n\\\nEOF\n",
        "cat <<EOF\n$(b\nEOF\n)\nEOF\n",
        "a <<$EOF\n",
        "a=(b > c)",
        "a=($(b))",
        "a >&$b",
        '"$\\\n(a)"',
        "$\\\n$(a)",
        "a[\n",
        '"$$(a)"',
        "$\\\n(a)",
        "$(\\\n(a))",
        "cat <\\\n<EOF\n",
        "a\\\n#",
        "a\\ #",
        "$(a)#",
        "`",
        "'",
    ],
)
def test_what_shells_read_differently_refuses_the_values_after_it(before: str) -> None:
    assert set(codes(command(f"{before} {X}"))) == {"TL607"}
    assert codes(command(f"echo {X}; {before}")) == []


def test_a_place_is_told_with_what_to_do() -> None:
    loaded = command(f"echo {X}\necho `cat {X}`")
    [problem] = loaded.problems
    assert (problem.code.id, problem.severity) == ("TL607", "error")
    assert "backticks" in problem.message
    assert "env" in problem.hint
    assert "{{.raw.inputs.x}}" in problem.hint


def test_the_place_that_is_told_is_the_one_that_is_not_safe() -> None:
    values = found(command(f"echo {X}\necho $(({X} + 1)) $(({X}))\necho `{X}`"))
    assert values == [("TL607", 9, 15), ("TL607", 10, 13)]


def test_no_variable_is_advised_where_bash_would_run_what_is_in_it() -> None:
    [problem] = command(f"echo $(({X} + 1))").problems
    assert "`integer`" in problem.hint
    assert "env" not in problem.hint


def test_a_number_may_stand_where_the_shell_calculates() -> None:
    for text in (f"echo $(({X} * 2))", f"[[ {X} -gt 1 ]]", f"(({X} > (1)))", f"a[{X}]=1"):
        assert codes(command(text, inputs="[{name: x, type: integer}]")) == []
        assert rendered(text, "-3") == text.replace(X, "-3")


@pytest.mark.parametrize(
    "text",
    [
        f'claude -p "Read {X} and let me know"',
        f"grep read {X}",
        f"read line < {X}",
        f"printf %s {X} >&2 2>&1",
        f"a=(-v {X} \"b {X}\" 'c{X}')",
        f'export A="{X}" B={X}',
        f"echo \"$(cat << 'EOF' | jq -r .a\n{X}\nEOF\n)\"",
        f'V=$(echo "$F" | jq -r ".[] | select(.name==\\"{X}\\") | .id")',
        f'find . -name "{X}-*.md" @{{u}} || echo ""',
        f"if [ $? -eq 0 ]; then cat {X}; fi",
        f"go test -v {X}",
        f"echo $$'{X}' a.$$.{X}",
        f"kubectl wait pod/{X}",
        f'git commit -m "update a[{X}]" -m "run test -v {X}"',
        f"pip install a[{X}]",
        f"curl -d a[b]={X}",
        f"awk '{{ print a[\"{X}\"] }}'",
        f'mapfile -t lines < <(grep -r "{X}" .)',
        f'read -r a b <<< "a {X}"',
        f'read -r a <<< "$(cat "{X}")"',
        f'read a < "$HOME/b c/{X}"',
        f"printf -v a '%s %s' b {X}",
        f'[[ "{X}" == full && $a -gt 3 ]]',
        f'[[ $a -gt 3 ]] || [[ "{X}" =~ a ]]',
        f'[ "{X}" -gt 3 ]',
        f"for ((i = 0; i < ${{n}}; i++)); do cat {X}; done",
        f'echo "$((10#$a + 1)) {X}"',
        f'local a={X} b="c {X}" d=$(cat "{X}") e',
        f'declare -r "a=b {X}"',
        f'export A="b\\"c {X}" B=c\\ {X}',
        f"export A=1 \\\n  B={X}",
        f'declare -a a=(b "{X}")',
    ],
)
def test_what_workflows_are_made_of_is_followed(text: str) -> None:
    assert codes(command(text)) == []


def test_each_place_has_its_quotes() -> None:
    assert rendered(f"a {X}", "b") == "a 'b'"
    assert rendered(f"a {X}", "it's") == "a 'it'\"'\"'s'"
    assert rendered(f'a "b {X}"', "$c") == 'a "b "\'$c\'""'
    assert rendered(f"a 'b {X}'", "it's") == "a 'b it'\"'\"'s'"
    assert rendered(f"a # {X}", "\nb") == "a # "
    assert rendered(f"a {X}", "") == "a ''"


def test_raw_values_are_put_in_as_they_are() -> None:
    assert rendered('a {{.raw.inputs.x}} "{{ .raw.inputs.x }}"', "-b $c") == 'a -b $c "-b $c"'
    assert codes(command("make {{.raw.inputs.x}} `{{.raw.inputs.x}}`")) == []


def test_a_document_ends_where_no_value_can_end_it() -> None:
    text = rendered(f"cat <<EOF\n{X}\nEOF\necho a", "EOF")
    first, _, last, _ = text.split("\n")
    assert first.removeprefix("cat <<") == last
    assert last.endswith("_EOF")
    assert rendered(f"cat <<EOF\nb\nEOF\necho {X}", "a") == "cat <<EOF\nb\nEOF\necho 'a'"


def test_outputs_are_quoted_too_and_warned_of_only_where_they_become_code() -> None:
    steps = "a: {{type: step, command: ls, on_success: b}}\nb: {{type: step, command: '{}'}}"
    assert codes(load_states(steps.format('echo {{.states.a.Output}} "{{.states.a.Output}}"'))) == []
    raw = load_states(steps.format("echo {{.raw.states.a.Output}}"))
    assert severities(raw) == [("TL606", "warning")]
    assert found(raw) == [("TL606", 6, 34)]


@pytest.mark.parametrize(
    "runner",
    [
        *("eval", "sh -c", "bash -euc", "ssh host", "python3 -c", "trap", "su -c", "compgen -W", "PS4="),
        *('"$SHELL" -c', "${SHELL} -lc", "alias b=", "source <("),
    ],
)
def test_an_argument_that_is_run_as_code_is_warned_of(runner: str) -> None:
    assert severities(command(f'{runner} "echo {X}"')) == [("TL606", "warning")]
    assert codes(command(f'echo {X}; {runner} "echo"')) == []


@pytest.mark.parametrize(
    "text",
    [
        "echo $((a + 1))",
        "((a > 1))",
        "[[ $a -gt 1 ]]",
        "echo ${!a}",
        'echo "${a@P}"',
        "for ((i=0; i<$a; i++)); do b; done",
    ],
)
def test_a_variable_that_bash_calculates_with_is_warned_of(text: str) -> None:
    assert severities(command(f"a={X}\n{text}")) == [("TL606", "warning")]
    assert severities(command(f'a="1 {X}"\n{text}')) == [("TL606", "warning")]
    assert severities(command(f"a=0{X}\n{text}")) == [("TL606", "warning")]
    assert codes(command(f"a={X}\n{text}", inputs="[{name: x, type: integer}]")) == []
    assert codes(command(f"ab={X}; {text}")) == []
    by_env = f"a: {{type: step, command: '{text}', env: {{a: '{X}'}}}}"
    assert severities(load_states(by_env, inputs="[{name: x}]")) == [("TL606", "warning")]
    assert codes(load_states(by_env, inputs="[{name: x, type: number}]")) == []


@pytest.mark.parametrize("runner", ["bash", "sudo sh -s", "python3 -", "ssh host"])
def test_a_document_that_is_run_as_code_is_warned_of(runner: str) -> None:
    assert severities(command(f"{runner} <<'EOF'\necho {X}\nEOF")) == [("TL606", "warning")]
    assert severities(command(f"{runner} <<\\EOF\necho {X}\nEOF")) == [("TL606", "warning")]
    assert severities(command(f"{runner} <<< {X}")) == [("TL606", "warning")]


@pytest.mark.parametrize("runner", ["bash", "sudo sh -s", "/bin/sh -", "$SHELL", "python3 -"])
def test_what_is_piped_into_a_shell_is_warned_of(runner: str) -> None:
    assert severities(command(f"echo {X} | {runner}")) == [("TL606", "warning")]
    assert severities(command(f"cat <<E | {runner}\n{X}\nE")) == [("TL606", "warning")]
    assert codes(command(f"date | {runner}; echo {X}")) == []
    assert codes(command(f"echo {X} || {runner}")) == []
    assert codes(command(f"echo {X} | {runner} a.sh | publish")) == []


def test_raw_is_for_commands_alone() -> None:
    loaded = load_states(
        "a: {type: step, command: x, dir: '{{.raw.inputs.x}}', on_success: b}\n"
        "b: {type: agent, provider: claude, prompt: '{{.raw.states.a.Output}}'}",
        inputs="[{name: x}]",
    )
    assert codes(loaded) == ["TL604", "TL604"]


def test_env_and_stdin_take_references_as_text() -> None:
    loaded = load_states(
        "a: {type: step, shell: bash, command: x, env: {A: '{{.inputs.x}}', B_1: ''}, stdin: '{{.inputs.x}}'}",
        inputs="[{name: x}]",
    )
    step = state(loaded, "a", CommandState)
    assert step.shell == "bash"
    assert step.env["A"].render({"x": "'"}, {}) == "'"
    assert step.stdin is not None
    assert codes(load_states("a: {type: step, command: x, env: {'A-B': x}}")) == ["TL104"]
    assert codes(load_states("a: {type: step, command: x, stdin: '{{.inputs.y}}'}")) == ["TL604"]
    assert codes(load_states("a: {type: step, command: x, shell: fish}")) == ["TL104"]


@pytest.mark.parametrize(
    "text",
    [
        "[[ -a ",
        "[[ " * 3,
        "a[ ",
        "read a; ",
        "=($aaaa",
        "${a$aaaa",
        "$aaaa",
        "(( ",
        "$((1+(1)",
        "sh -a ",
        "<<A ",
        "`\\`",
        '"$(',
        "#\n",
        X,
    ],
)
def test_a_long_command_is_followed_to_its_end(text: str) -> None:
    assert shell_template(parse_template(f"{text * 5000} {X}")[0]).references()
