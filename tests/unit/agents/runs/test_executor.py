"""The executor's path through a workflow, with real commands."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.support.child_trees import marked, new_mark, survivors
from tests.support.runs import run_text
from tests.support.waiting import at_most, until

from trunkline.agents.runs.run_events import RunEvent, RunStarted, StepEnded, StepStarted
from trunkline.agents.runs.workflow_run import MOST_STEPS
from trunkline.core.errors import COMMAND_FAILED, STEP_INTERRUPTED, STEP_TIMEOUT, TOO_MANY_STEPS


async def test_inputs_and_outputs_reach_the_steps_that_name_them(tmp_path: Path) -> None:
    ran = await run_text(
        tmp_path,
        """
        name: greet
        inputs: [{name: who, required: true}]
        states:
          initial: say
          say: {type: step, command: "printf 'hello {{.inputs.who}}\\n\\n'", on_success: twice}
          twice:
            type: step
            command: "echo '{{.states.say.Output}}' >&2; echo '{{.states.say.Output}}'"
            on_success: end
          end: {type: terminal, message: "said {{.states.twice.Output}}"}
        """,
        inputs={"who": "Ada"},
    )
    assert ran.way == [("say", "", "hello Ada"), ("twice", "", "hello Ada\nhello Ada")]
    assert (ran.end.status, ran.end.state, ran.end.output) == ("success", "end", "hello Ada\nhello Ada")
    assert ran.end.message == "said hello Ada\nhello Ada"
    assert [type(event) for event in ran.events[:3]] == [RunStarted, StepStarted, StepEnded]


@pytest.mark.parametrize(
    ("on_failure", "status", "state"), [("on_failure: mend,", "success", "end"), ("", "failure", "")]
)
async def test_a_failed_step_goes_where_on_failure_leads_and_ends_the_run_without(
    tmp_path: Path, on_failure: str, status: str, state: str
) -> None:
    ran = await run_text(
        tmp_path,
        f"""
        name: fails
        states:
          initial: break
          break: {{type: step, command: "echo went wrong; exit 3", {on_failure} on_success: end}}
          mend: {{type: step, command: "echo mended after {{{{.states.break.Output}}}}", on_success: end}}
          end: {{type: terminal}}
        """,
    )
    assert ran.way[0] == ("break", COMMAND_FAILED.id, "went wrong")
    assert ran.way[1:] == ([("mend", "", "mended after went wrong")] if on_failure else [])
    assert (ran.end.status, ran.end.state) == (status, state)
    assert (ran.end.problem is None) == (status == "success")


async def test_a_terminal_failure_is_one_whatever_came_before(tmp_path: Path) -> None:
    ran = await run_text(
        tmp_path,
        """
        name: gives up
        states:
          initial: fine
          fine: {type: step, command: "true", on_success: never}
          never: {type: terminal, status: failure, message: not today}
        """,
    )
    assert (ran.end.status, ran.end.state, ran.end.message) == ("failure", "never", "not today")


async def test_a_last_step_without_on_success_ends_the_run_in_success(tmp_path: Path) -> None:
    ran = await run_text(tmp_path, "{name: short, states: {initial: only, only: {type: step, command: echo done}}}")
    assert (ran.end.status, ran.end.state, ran.end.output) == ("success", "", "done")


async def test_a_step_runs_in_its_folder_and_one_that_is_not_there_fails_it(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    ran = await run_text(
        tmp_path,
        """
        name: folders
        states:
          initial: there
          there: {type: step, command: pwd, dir: inside, on_success: nowhere}
          nowhere: {type: step, command: pwd, dir: outside}
        """,
    )
    assert ran.way == [("there", "", str(tmp_path / "inside")), ("nowhere", COMMAND_FAILED.id, "")]


@pytest.mark.parametrize("folder", ["out", "inside/../out", "chain/below"])
async def test_no_link_leads_a_step_out_of_the_folder_of_the_run(tmp_path: Path, folder: str) -> None:
    """But what the workflow itself names is its user's word, wherever it is."""
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for made in (project / "inside", elsewhere / "below"):
        made.mkdir(parents=True)
    (project / "out").symlink_to("../elsewhere")
    (project / "chain").symlink_to("out")
    (project / "within").symlink_to("inside")
    text = f"""
        name: folders
        states:
          initial: within
          within: {{type: step, command: pwd, dir: within, on_success: beside}}
          beside: {{type: step, command: pwd, dir: ../elsewhere, on_success: named}}
          named: {{type: step, command: pwd, dir: '{project}/out', on_success: led}}
          led: {{type: step, command: pwd, dir: '{folder}'}}
        """
    ran = await run_text(project, text)
    went = [("within", "", str(project / "inside")), ("beside", "", str(elsewhere)), ("named", "", str(elsewhere))]
    assert ran.way == [*went, ("led", COMMAND_FAILED.id, "")]


@pytest.mark.parametrize("folder", ["~nobody-of-this-name/x", "x" * 6000, "a\0b"])
async def test_a_folder_that_cannot_be_one_is_not_there(tmp_path: Path, folder: str) -> None:
    text = "{name: odd, inputs: [{name: d}], states: {initial: a, a: {type: step, command: pwd, dir: '{{.inputs.d}}'}}}"
    ran = await run_text(tmp_path, text, inputs={"d": folder})
    assert ran.way == [("a", COMMAND_FAILED.id, "")]


@pytest.mark.slow
@pytest.mark.law
async def test_a_step_over_its_time_is_ended_with_everything_it_started(tmp_path: Path) -> None:
    mark, limit_ms = new_mark(), at_most(2000)
    ran = await run_text(
        tmp_path,
        f"""
        name: slow
        states:
          initial: wait
          wait: {{type: step, command: "echo begun; sleep 600 & sleep 600", timeout: {limit_ms:.0f}ms, on_failure: end}}
          end: {{type: terminal, status: failure}}
        """,
        environ=marked(mark),
    )
    assert ran.way == [("wait", STEP_TIMEOUT.id, "begun")]
    assert ran.end.problem is not None
    assert survivors(mark) == []


async def test_a_circle_of_steps_comes_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.agents.runs.workflow_run.MOST_STEPS", 5)
    assert MOST_STEPS == 1000
    ran = await run_text(
        tmp_path,
        """
        name: circle
        states:
          initial: a
          a: {type: step, command: "true", on_success: b}
          b: {type: step, command: "true", on_success: a, on_failure: end}
          end: {type: terminal}
        """,
    )
    assert len(ran.way) == ran.end.steps == 5
    assert ran.end.problem is not None
    assert (ran.end.status, ran.end.problem.code) == ("failure", TOO_MANY_STEPS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_the_step_and_is_recorded_even_where_the_program_reports_success(
    tmp_path: Path, number: signal.Signals
) -> None:
    def on_signal(event: RunEvent) -> None:
        if isinstance(event, StepStarted):
            killers.append(asyncio.get_running_loop().create_task(once_it_runs()))

    async def once_it_runs() -> None:
        await until((tmp_path / "runs").exists, "the command runs")
        os.kill(os.getpid(), number)

    killers: list[asyncio.Task[None]] = []
    ran = await run_text(
        tmp_path,
        """
        name: long
        states:
          initial: wait
          wait:
            type: step
            command: "trap 'exit 0' TERM INT; touch runs; while :; do sleep 0.05; done"
            on_success: end
            on_failure: end
          end: {type: terminal}
        """,
        also=on_signal,
    )
    await asyncio.gather(*killers)
    [step] = ran.of(StepEnded)
    assert (step.status, step.next) == ("interrupted", "")
    assert step.problem is not None
    assert step.problem.code is STEP_INTERRUPTED
    assert number.name in step.problem.message
    assert (ran.end.status, ran.end.state, ran.end.steps) == ("interrupted", "", 1)


async def test_a_long_output_is_kept_within_bounds(tmp_path: Path) -> None:
    ran = await run_text(
        tmp_path,
        """
        name: loud
        states: {initial: shout, shout: {type: step, command: "seq 1 200000"}}
        """,
    )
    output = ran.end.output
    assert output.startswith("1\n2\n")
    assert output.endswith("\n200000")
    assert "left out" in output
    assert len(output) < 200_000


@pytest.mark.law
async def test_commands_get_the_environment_but_for_our_tokens(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "COLOUR": "blue", "TRUNKLINE_TOKEN": "secret"}
    text = "{name: env, states: {initial: look, look: {type: step, command: 'echo $COLOUR-$TRUNKLINE_TOKEN'}}}"
    ran = await run_text(tmp_path, text, environ=environ)
    assert ran.end.output == "blue-"


BRANCHING = """
name: branches
inputs: [{name: mode, default: fast}]
states:
  initial: test
  test:
    type: step
    command: "COMMAND"
    on_success: passed
    on_failure: failed
    transitions:
      - {when: "states.test.ExitCode == 3 and inputs.mode == 'full'", goto: third}
      - {when: "states.test.Output contains 'flaky'", goto: test2}
  test2: {type: step, command: "exit 1", transitions: [{when: "states.test.ExitCode == 4", goto: passed}, {goto: last}]}
  third: {type: terminal}
  last: {type: terminal}
  passed: {type: terminal}
  failed: {type: terminal, status: failure}
"""


@pytest.mark.parametrize(
    ("command", "mode", "end"),
    [
        ("true", "full", "passed"),
        ("exit 3", "full", "third"),
        ("exit 3", "fast", "failed"),
        ("echo flaky", "fast", "last"),
        ("echo flaky; exit 4", "fast", "passed"),
        ("kill -9 $$", "full", "failed"),
    ],
)
async def test_the_first_transition_that_applies_is_taken_before_success_and_failure(
    tmp_path: Path, command: str, mode: str, end: str
) -> None:
    ran = await run_text(tmp_path, BRANCHING.replace("COMMAND", command), inputs={"mode": mode})
    assert ran.end.state == end
    assert [step.next for step in ran.of(StepEnded)][-1] == end


async def test_exit_codes_of_signals_and_of_what_has_none_can_be_compared(tmp_path: Path) -> None:
    ran = await run_text(
        tmp_path,
        """
        name: ends
        states:
          initial: killed
          killed:
            type: step
            command: kill -9 $$
            transitions: [{when: "states.killed.ExitCode == 137", goto: slow}]
          slow:
            type: step
            command: sleep 60
            timeout: 100ms
            transitions: [{when: "states.slow.ExitCode == 1", goto: end}]
          end: {type: terminal}
        """,
    )
    assert (ran.end.status, ran.end.state) == ("success", "end")


async def test_a_command_gets_its_values_as_text_its_variables_and_its_input(tmp_path: Path) -> None:
    text = """
        name: w
        inputs: [{name: v}]
        states:
          initial: say
          say: {type: step, command: "printf '%s' {{.inputs.v}}; {{.raw.inputs.v}}", on_success: hear}
          hear:
            type: step
            command: printf %s "{{.states.say.Output}}" "$V"; cat
            env: {V: "<{{.inputs.v}}>"}
            stdin: "({{.states.say.Output}})"
    """
    value = "echo \"$((1 + 1))\" '#'"
    ran = await run_text(tmp_path, text, inputs={"v": value})
    assert ran.way[0] == ("say", "", f"{value}2 #")
    assert ran.end.output == f"{value}2 #<{value}>({value}2 #)"


async def test_input_that_is_not_read_or_more_than_a_pipe_holds_is_no_trouble(tmp_path: Path) -> None:
    text = """
        name: w
        inputs: [{name: v}]
        states:
          initial: none
          none: {type: step, command: "true", stdin: "{{.inputs.v}}", on_success: all}
          all: {type: step, command: wc -c, stdin: "{{.inputs.v}}"}
    """
    ran = await run_text(tmp_path, text, inputs={"v": "x" * 3_000_000})
    assert ran.end.output.strip() == "3000000"


@pytest.mark.needs("bash")
async def test_a_command_runs_in_bash_where_it_says_so(tmp_path: Path) -> None:
    text = "{name: w, states: {initial: a, a: {type: step, shell: SHELL, command: 'echo ${BASH_VERSION:+bash}'}}}"
    assert (await run_text(tmp_path, text.replace("SHELL", "bash"))).end.output == "bash"
    nowhere = await run_text(tmp_path, text.replace("SHELL", "bash"), environ={"PATH": str(tmp_path)})
    assert nowhere.way == [("a", COMMAND_FAILED.id, "")]


async def test_a_value_with_a_nul_is_refused(tmp_path: Path) -> None:
    text = "{name: w, inputs: [{name: v}], states: {initial: a, a: {type: step, command: 'echo {{.inputs.v}}'}}}"
    ran = await run_text(tmp_path, text, inputs={"v": "a\0b"})
    assert ran.way == [("a", COMMAND_FAILED.id, "")]


@pytest.mark.needs("bwrap")
async def test_a_command_in_a_sandbox_gets_its_variables_and_its_input_too(tmp_path: Path) -> None:
    step = "{type: step, sandbox: required, env: {A: b}, stdin: c, command: 'echo $A; cat'}"
    assert (await run_text(tmp_path, f"{{name: w, states: {{initial: a, a: {step}}}}}")).end.output == "b\nc"
