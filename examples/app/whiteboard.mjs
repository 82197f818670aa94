// The whiteboard in JavaScript: node examples/app/whiteboard.mjs [GATEWAY]
// See whiteboard.py beside it; both have the same tools and look the same.
import { App, DEFAULT_GATEWAY, ToolError } from "../../clients/javascript/trunkline-app.mjs";

const [WIDTH, HEIGHT] = [64, 16];
const COLOURS = { white: 37, red: 31, green: 32, yellow: 33, blue: 34, magenta: 35, cyan: 36 };
const X = { type: "integer", description: `Column, 0 to ${WIDTH - 1} from the left` };
const Y = { type: "integer", description: `Row, 0 to ${HEIGHT - 1} from the top` };
const COLOUR = { enum: Object.keys(COLOURS), default: "white" };

const gateway = process.argv[2] ?? DEFAULT_GATEWAY;
const app = new App("Whiteboard", { gateway });
const cells = new Map();

function check(x, y) {
  if (x < 0 || x >= WIDTH || y < 0 || y >= HEIGHT) {
    throw new ToolError(`(${x}, ${y}) is not on the board, which has ${WIDTH} columns and ${HEIGHT} rows`);
  }
}

// All of it or, where something would be beside the board, nothing. A point is [x, y, character].
function draw(points, colour, what) {
  for (const [x, y] of points) check(x, y);
  for (const [x, y, character] of points) cells.set(`${x},${y}`, { character, colour });
  return show(what);
}

const range = (start, end) => Array.from({ length: end - start }, (_, index) => start + index);

app.tool(
  {
    name: "write",
    description: "Write a text on the whiteboard, from left to right.",
    parameters: { x: X, y: Y, text: { type: "string" }, colour: COLOUR },
  },
  ({ x, y, text, colour }) => {
    const points = [...text].map((character, offset) => [x + offset, y, character]);
    return draw(points, colour, `wrote \`${text}\``);
  },
);

app.tool(
  {
    name: "line",
    description: "Draw a straight line on the whiteboard.",
    parameters: { x1: X, y1: Y, x2: X, y2: Y, character: { type: "string", default: "*" }, colour: COLOUR },
  },
  ({ x1, y1, x2, y2, character, colour }) => {
    check(x1, y1);
    check(x2, y2);
    const steps = Math.max(Math.abs(x2 - x1), Math.abs(y2 - y1), 1);
    const between = (from, to, step) => Math.round(from + ((to - from) * step) / steps);
    const place = (step) => [between(x1, x2, step), between(y1, y2, step), character[0] ?? "*"];
    return draw(range(0, steps + 1).map(place), colour, "drew a line");
  },
);

app.tool(
  {
    name: "box",
    description: "Draw an empty box on the whiteboard. x and y are its upper left corner.",
    parameters: { x: X, y: Y, width: { type: "integer" }, height: { type: "integer" }, colour: COLOUR },
  },
  ({ x, y, width, height, colour }) => {
    if (width < 2 || width > WIDTH || height < 2 || height > HEIGHT) {
      throw new ToolError(`A box has 2 to ${WIDTH} columns and 2 to ${HEIGHT} rows`);
    }
    const [left, right, top, bottom] = [x, x + width - 1, y, y + height - 1];
    const flat = range(left, right).flatMap((column) => [[column, top, "-"], [column, bottom, "-"]]);
    const steep = range(top, bottom).flatMap((row) => [[left, row, "|"], [right, row, "|"]]);
    const corners = [left, right].flatMap((column) => [[column, top, "+"], [column, bottom, "+"]]);
    return draw([...flat, ...steep, ...corners], colour, "drew a box");
  },
);

app.tool({ name: "wipe", description: "Wipe the whole whiteboard.", annotations: { destructiveHint: true } }, () => {
  cells.clear();
  return show("wiped the board");
});

app.tool({ name: "look", description: "See the whiteboard as it is now.", annotations: { readOnlyHint: true } }, () =>
  frame(false),
);

function frame(inColour) {
  const cell = (x, y) => {
    const { character, colour } = cells.get(`${x},${y}`) ?? { character: " ", colour: "white" };
    return inColour && character !== " " ? `\x1b[${COLOURS[colour]}m${character}\x1b[0m` : character;
  };
  const edge = `+${"-".repeat(WIDTH)}+`;
  const row = (y) => `|${Array.from({ length: WIDTH }, (_, x) => cell(x, y)).join("")}|`;
  return [edge, ...Array.from({ length: HEIGHT }, (_, y) => row(y)), edge].join("\n");
}

// Draw the board on the terminal, always in the same place; one below the other where it is not a terminal.
function show(what) {
  const { isTTY } = process.stdout;
  process.stdout.write(`${isTTY ? "\x1b[H\x1b[J" : ""}${frame(isTTY)}\n${what}\n`);
  return what;
}

process.once("SIGINT", () => app.stop());
show(`dialling ${gateway}; Ctrl-C ends`);
await app.run();
