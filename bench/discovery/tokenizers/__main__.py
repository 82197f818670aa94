"""Prints how far the estimate is off, for every set of tools and every tokenizer. See __init__.py."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trunkline.search.token_costs import tokens_of, tokens_of_text

HERE = Path(__file__).resolve().parent
SAMPLES = HERE.parents[2] / "tests" / "unit" / "search" / "token_samples.json"
LIST = 50
LISTS = 2_000


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m bench.discovery.tokenizers")
    options.add_argument("--samples", action="store_true", help="count the samples of the unit tests anew")
    if not (HERE / "node_modules").is_dir():
        print(f"the tokenizers are missing: run `npm ci` in {HERE}", file=sys.stderr)
        return 2
    if options.parse_args().samples:
        count_samples()
        return 0
    folder = os.environ.get("TOOL_DATA")
    if not folder:
        print("TOOL_DATA must name the folder of the sets (see bench/discovery/README.md)", file=sys.stderr)
        return 2
    print("| tools | tokenizer | tokens a tool | all together | list of 50: mean, 99 % | one tool: 50 %, 95 %, 99 % |")
    print("|---|---|---|---|---|---|")
    for path in sorted(Path(folder).glob("*/tools.jsonl")):
        report(path)
    return 0


def report(path: Path) -> None:
    definitions = [definition for tool, definition in read(path) if held_back(tool)]
    estimates = [tokens_of(definition.encode()) for definition in definitions]
    for tokenizer, truths in counted(definitions).items():
        print("| " + " | ".join([f"{path.parent.name} ({len(truths)})", tokenizer, *row(estimates, truths)]) + " |")


def read(path: Path) -> list[tuple[str, str]]:
    """The id of each tool and what a model sees of it."""
    tools = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [(tool["id"], as_shown(tool["name"], tool["description"], tool["schema"])) for tool in tools]


def as_shown(name: str, description: str, schema: dict[str, Any]) -> str:
    shown = {"name": name, "description": description, "inputSchema": schema}
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


def held_back(tool: str) -> bool:
    """Whether a tool is of the half that the pieces were not chosen on."""
    return hashlib.sha256(tool.encode()).digest()[0] & 1 == 1


def counted(texts: Sequence[str]) -> dict[str, list[int]]:
    found = subprocess.run(
        ["node", "count.mjs"], cwd=HERE, input=json.dumps(texts).encode(), stdout=subprocess.PIPE, check=True
    )
    return json.loads(found.stdout)


def row(estimates: Sequence[int], truths: Sequence[int]) -> list[str]:
    chance = random.Random(1)
    lists = [chance.choices(range(len(truths)), k=LIST) for _ in range(LISTS)]
    of_lists = [abs(off(sum(estimates[at] for at in drawn), sum(truths[at] for at in drawn))) for drawn in lists]
    of_tools = [abs(off(estimate, truth)) for estimate, truth in zip(estimates, truths, strict=True)]
    return [
        f"{statistics.fmean(truths):.0f}",
        f"{off(sum(estimates), sum(truths)):+.1%}",
        f"{statistics.fmean(of_lists):.1%}, {percentile(of_lists, 99):.1%}",
        ", ".join(f"{percentile(of_tools, share):.1%}" for share in (50, 95, 99)),
    ]


def off(estimate: int, truth: int) -> float:
    return estimate / truth - 1


def percentile(values: Sequence[float], share: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * share // 100)]


def count_samples() -> None:
    samples = json.loads(SAMPLES.read_text("utf-8"))
    for kind in ("tools", "texts"):
        texts = [one["text"] if kind == "texts" else shown_sample(one["tool"]) for one in samples[kind]]
        for tokenizer, truths in counted(texts).items():
            for sample, truth in zip(samples[kind], truths, strict=True):
                sample.setdefault("counts", {})[tokenizer] = truth
        for sample, text in zip(samples[kind], texts, strict=True):
            print(tokens_of_text(text), sample["counts"], text[:60])
    SAMPLES.write_text(json.dumps(samples, ensure_ascii=False, indent=1) + "\n", "utf-8")


def shown_sample(tool: dict[str, Any]) -> str:
    return as_shown(tool["name"], tool["description"], tool["inputSchema"])


if __name__ == "__main__":
    sys.exit(main())
