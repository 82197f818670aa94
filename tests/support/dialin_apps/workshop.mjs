// The twin of workshop.py: the same tools under the same name, with the JavaScript client.
import { App, Refused, ToolError, image } from "../../../clients/javascript/trunkline-app.mjs";

const [gateway, token] = process.argv.slice(2);
const app = new App("Workshop", { gateway, token, maxConcurrent: 4 });
const say = (...words) => console.log(...words);

app.tool(
  {
    name: "add",
    description: "Add two numbers",
    parameters: { a: { type: "integer" }, b: { type: "integer", default: 1 } },
    annotations: { readOnlyHint: true },
  },
  ({ a, b }) => a + b,
);
app.tool({ name: "echo", description: "Give it back", parameters: { value: {} } }, async ({ value }) => value);

const part = {
  type: "object",
  properties: {
    name: { type: "string" },
    size: { type: "number", default: 1 },
    tags: { type: "array", items: { type: "string" }, default: [] },
  },
  required: ["name"],
  additionalProperties: false,
};
app.tool(
  {
    name: "build",
    description: "Build something",
    parameters: {
      parts: { type: "array", items: part },
      colour: { enum: ["red", "blue"] },
      owner: { anyOf: [{ type: "string" }, { type: "null" }], default: null },
    },
  },
  ({ parts, colour, owner }) => `${colour} ${parts.map(({ name }) => name).join(", ")} for ${owner ?? "None"}`,
);
app.tool({ name: "fail", description: "Fail in some way", parameters: { kind: { type: "string" } } }, ({ kind }) => {
  if (kind === "told") throw new ToolError("the glue is dry");
  if (kind === "huge") return "x".repeat(17 << 20);
  throw new RangeError("no such thing");
});
app.tool({ name: "picture", description: "Look at it" }, () =>
  image(Buffer.from("\x89PNG", "latin1"), "image/png", "a chair"),
);
app.tool(
  { name: "work", description: "Work step by step", parameters: { steps: { type: "integer" } } },
  ({ steps }, { progress }) => {
    for (let step = 1; step <= steps; step += 1) progress(step, { total: steps, message: `step ${step}` });
    return `${steps} steps`;
  },
);
app.tool({ name: "hold", description: "Never end" }, (_, { progress, signal }) => {
  progress(0, { message: "holding" });
  return new Promise((_resolve, reject) => {
    signal.addEventListener("abort", () => {
      say("cancelled");
      reject(new Error("cancelled"));
    });
  });
});
app.tool({ name: "grow", description: "Get one tool more", parameters: { name: { type: "string" } } }, ({ name }) => {
  app.tool({ name, description: "Grown" }, () => `I am ${name}`);
  return "grown";
});
app.tool({ name: "shrink", description: "Get one tool less", parameters: { name: { type: "string" } } }, ({ name }) => {
  app.remove(name);
  return "gone";
});
app.tool({ name: "leave", description: "Stop" }, () => app.stop());

const running = app.run();
try {
  say("registered", await app.untilRegistered());
  await running;
  say("stopped");
} catch (error) {
  await running.catch(() => {});
  if (!(error instanceof Refused)) throw error;
  say("refused", error.code, error.message);
  process.exitCode = 3;
}
