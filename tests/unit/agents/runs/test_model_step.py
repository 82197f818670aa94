"""The options of a step as parameters of its model requests."""

from __future__ import annotations

from pathlib import Path

from trunkline.agents.providers.openai.request import ChatEndpoint
from trunkline.agents.runs.model_step import endpoint_of
from trunkline.agents.runs.step import AgentTask
from trunkline.agents.workflow.document import AgentState
from trunkline.agents.workflow.load import load_workflow_text

FLOW = """
name: one model
states:
  initial: ask
  ask:
    type: agent
    provider: openai-compatible
    prompt: Hello
    options:
      base_url: https://models.example/v1
      api_key: ${MODEL_KEY}
      model: small
      headers: {X-Team: "${TEAM}-x"}
      max_turns: 7
      max_tokens: 100
      temperature: 0.5
"""


def test_every_option_of_a_step_counts(tmp_path: Path) -> None:
    loaded = load_workflow_text(FLOW, tmp_path / "flow.yaml", environ={"MODEL_KEY": "k", "TEAM": "blue"})
    assert loaded.workflow is not None, loaded.problems
    state = loaded.workflow.states["ask"]
    assert isinstance(state, AgentState)
    task = AgentTask(state=state, prompt="Hello", model="small", folder=tmp_path, span=None)
    assert endpoint_of(task) == ChatEndpoint(
        base_url="https://models.example/v1",
        api_key="k",
        model="small",
        headers={"X-Team": "blue-x"},
        max_turns=7,
        max_tokens=100,
        temperature=0.5,
    )
