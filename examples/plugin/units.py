"""A plugin in Python: each function is an operation, and Trunkline offers it as a tool.

Run it with `trunkline up -c examples/plugin/trunkline.yaml`.
"""

from __future__ import annotations

from typing import Annotated

from trunkline.plugin import OperationFailed, Plugin

plugin = Plugin("units", version="1.0.0", description="Converts between units of measurement")
METRES = {"m": 1.0, "km": 1000.0, "mile": 1609.344, "ft": 0.3048}


@plugin.operation
def convert(
    value: Annotated[float, "The length"],
    unit: Annotated[str, "Its unit: m, km, mile or ft"],
    to: Annotated[str, "The unit to convert it to"] = "m",
) -> dict[str, float | str]:
    """Convert a length from one unit to another."""
    for name in (unit, to):
        if name not in METRES:
            raise OperationFailed(f"unknown unit `{name}`; known are {', '.join(METRES)}")
    digits = plugin.config.get("digits", 3)
    return {"value": round(value * METRES[unit] / METRES[to], digits), "unit": to}


if __name__ == "__main__":
    plugin.serve()
