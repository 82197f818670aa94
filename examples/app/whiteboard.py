"""A whiteboard in the terminal that an agent draws on, while you watch: `python whiteboard.py [GATEWAY]`."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from trunkline.client import DEFAULT_GATEWAY, App, ToolError

WIDTH, HEIGHT = 64, 16
COLOURS = {"white": 37, "red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36}
Colour = Literal["white", "red", "green", "yellow", "blue", "magenta", "cyan"]
X = Annotated[int, f"Column, 0 to {WIDTH - 1} from the left"]
Y = Annotated[int, f"Row, 0 to {HEIGHT - 1} from the top"]

app = App("Whiteboard", gateway=sys.argv[1] if len(sys.argv) > 1 else DEFAULT_GATEWAY)
cells: dict[tuple[int, int], tuple[str, Colour]] = {}


def check(x: int, y: int) -> None:
    if not (0 <= x < WIDTH and 0 <= y < HEIGHT):
        raise ToolError(f"({x}, {y}) is not on the board, which has {WIDTH} columns and {HEIGHT} rows")


def draw(points: dict[tuple[int, int], str], colour: Colour, what: str) -> str:
    """Draws everything, or nothing where a part would be off the board."""
    for x, y in points:
        check(x, y)
    cells.update({position: (character, colour) for position, character in points.items()})
    return show(what)


@app.tool
async def write(x: X, y: Y, text: str, colour: Colour = "white") -> str:
    """Write a text on the whiteboard, from left to right."""
    return draw({(x + offset, y): character for offset, character in enumerate(text)}, colour, f"wrote `{text}`")


@app.tool
async def line(x1: X, y1: Y, x2: X, y2: Y, character: str = "*", colour: Colour = "white") -> str:
    """Draw a straight line on the whiteboard."""
    check(x1, y1)
    check(x2, y2)
    steps = max(abs(x2 - x1), abs(y2 - y1), 1)
    places = [(x1 + (x2 - x1) * step / steps, y1 + (y2 - y1) * step / steps) for step in range(steps + 1)]
    return draw({(round(x), round(y)): character[:1] or "*" for x, y in places}, colour, "drew a line")


@app.tool
async def box(x: X, y: Y, width: int, height: int, colour: Colour = "white") -> str:
    """Draw an empty box on the whiteboard. x and y are its upper left corner."""
    if not (2 <= width <= WIDTH and 2 <= height <= HEIGHT):
        raise ToolError(f"A box has 2 to {WIDTH} columns and 2 to {HEIGHT} rows")
    left, right, top, bottom = x, x + width - 1, y, y + height - 1
    sides = {(column, row): "-" for column in range(left, right) for row in (top, bottom)}
    sides |= {(column, row): "|" for column in (left, right) for row in range(top, bottom)}
    corners = {(column, row): "+" for column in (left, right) for row in (top, bottom)}
    return draw(sides | corners, colour, "drew a box")


@app.tool(annotations={"destructiveHint": True})
async def wipe() -> str:
    """Wipe the whole whiteboard."""
    cells.clear()
    return show("wiped the board")


@app.tool(annotations={"readOnlyHint": True})
async def look() -> str:
    """See the whiteboard as it is now."""
    return frame(in_colour=False)


def frame(*, in_colour: bool) -> str:
    def cell(x: int, y: int) -> str:
        character, colour = cells.get((x, y), (" ", "white"))
        return f"\x1b[{COLOURS[colour]}m{character}\x1b[0m" if in_colour and character != " " else character

    edge = f"+{'-' * WIDTH}+"
    rows = [f"|{''.join(cell(x, y) for x in range(WIDTH))}|" for y in range(HEIGHT)]
    return "\n".join([edge, *rows, edge])


def show(what: str) -> str:
    """Draw the board on the terminal, always in the same place; one below the other where it is not a terminal."""
    is_terminal = sys.stdout.isatty()
    start = "\x1b[H\x1b[J" if is_terminal else ""
    sys.stdout.write(f"{start}{frame(in_colour=is_terminal)}\n{what}\n")
    sys.stdout.flush()
    return what


if __name__ == "__main__":
    show(f"dialling {app.gateway}; Ctrl-C ends")
    app.run_forever()
