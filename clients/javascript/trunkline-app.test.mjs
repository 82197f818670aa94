// node --test clients/javascript/trunkline-app.test.mjs
import assert from "node:assert/strict";
import net from "node:net";
import { createInterface } from "node:readline";
import { test } from "node:test";

import { App, DEFAULT_GATEWAY, Refused, ToolError, image } from "./trunkline-app.mjs";

const quiet = { log: () => {} };
const noop = () => null;

/** A gateway that takes every app; `next()` is the next message of the one that dialled, `write` answers it. */
async function gateway(answer = () => ({ type: "registered", server: "App" })) {
  const inbox = [];
  const readers = [];
  const sockets = new Set();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket)).on("error", noop);
    createInterface({ input: socket }).on("line", (line) => {
      const message = JSON.parse(line);
      if (message.type === "register") socket.write(`${JSON.stringify(answer(message))}\n`);
      if (readers.length) readers.shift()(message);
      else inbox.push(message);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    address: `127.0.0.1:${server.address().port}`,
    next: () => (inbox.length ? Promise.resolve(inbox.shift()) : new Promise((resolve) => readers.push(resolve))),
    write: (message) => sockets.forEach((socket) => socket.write(`${JSON.stringify(message)}\n`)),
    close: () => {
      sockets.forEach((socket) => socket.destroy());
      return new Promise((resolve) => server.close(resolve));
    },
  };
}

test("an app has a name that can stand before a colon", () => {
  assert.equal(DEFAULT_GATEWAY, "127.0.0.1:5100");
  for (const name of ["", "a:b", "a\nb"]) assert.throws(() => new App(name), /cannot be an app's name/);
  assert.throws(() => new App("A", { gateway: "nowhere" }), /neither `host:port` nor the path/);
  assert.throws(() => new App("A", { gateway: "host:99999" }), /neither `host:port` nor the path/);
  assert.throws(() => new App("A", { maxConcurrent: 0 }), /at least 1/);
});

test("what cannot be a tool is refused where it is declared", () => {
  const app = new App("A");
  assert.throws(() => app.tool({ name: "a b" }, noop), /cannot be a tool's name/);
  assert.throws(() => app.tool({ name: "a" }), /has no function/);
  const takes = (x) => app.tool({ name: "a", parameters: { x } }, noop);
  assert.throws(() => takes({ type: "int" }), /`x`: `int` is no type of JSON/);
  assert.throws(() => takes({ type: "array", items: { type: "str" } }), /`x`, items: `str` is no type of JSON/);
  assert.throws(() => takes("string"), /`x`: a JSON Schema must be an object/);
  assert.throws(() => app.tool({ name: "a", inputSchema: { type: "array" } }, noop), /must be of type `object`/);
  assert.throws(() => app.tool({ name: "a", inputSchema: { type: "object" }, parameters: {} }, noop), /give either/);
  assert.throws(() => app.remove("a"), /there is no tool `a`/);
  assert.deepEqual(app.tools, []);
});

test("it answers a call, with defaults filled in", async () => {
  const peer = await gateway();
  const app = new App("A", { gateway: peer.address, ...quiet });
  const parameters = { a: { type: "integer" }, b: { type: "integer", default: 1 } };
  app.tool({ name: "add", parameters }, ({ a, b }) => a + b);
  const running = app.run();
  assert.equal(await app.untilRegistered(), "App");
  assert.equal((await peer.next()).tools[0].name, "A:add");
  peer.write({ type: "toolInvocation", correlationId: 7, tool: "A:add", parameters: { a: 2 } });
  const result = { success: true, data: 3, error: null };
  assert.deepEqual(await peer.next(), { type: "toolResponse", correlationId: 7, result });
  await assert.rejects(app.run(), /is running already/);
  app.stop();
  await running;
  await assert.rejects(app.untilRegistered(), /has stopped/);
  await peer.close();
});

test("a signal ends it, before and while it runs", async () => {
  const peer = await gateway();
  const app = new App("A", { gateway: peer.address, ...quiet });
  await app.run({ signal: AbortSignal.abort() });
  const controller = new AbortController();
  const running = app.run({ signal: controller.signal });
  await app.untilRegistered();
  assert.ok(app.isRegistered);
  controller.abort();
  await running;
  assert.ok(!app.isRegistered);
  await peer.close();
});

test("a signal ends it while nobody answers", async () => {
  const controller = new AbortController();
  const log = (level) => level === "warning" && controller.abort();
  await new App("A", { gateway: "127.0.0.1:1", log }).run({ signal: controller.signal });
});

test("a refusal is told with its code, to all who wait", async () => {
  const peer = await gateway(() => ({ type: "refused", code: "TL415", message: "the token is wrong" }));
  const app = new App("A", { gateway: peer.address, ...quiet });
  const running = app.run();
  await assert.rejects(app.untilRegistered(), Refused);
  await assert.rejects(running, { code: "TL415", reason: "the token is wrong" });
  await peer.close();
});

test("several changes of tools are told once", async () => {
  const peer = await gateway();
  const app = new App("A", { gateway: peer.address, ...quiet });
  const running = app.run();
  await app.untilRegistered();
  assert.deepEqual((await peer.next()).tools, []);
  app.tool({ name: "one" }, noop).tool({ name: "two" }, noop).remove("one");
  assert.deepEqual((await peer.next()).tools.map(({ name }) => name), ["A:two"]);
  app.stop();
  await running;
  await peer.close();
});

test("results that JSON cannot express fail their call", async () => {
  const peer = await gateway();
  const app = new App("A", { gateway: peer.address, ...quiet });
  const loop = {};
  loop.loop = loop;
  const values = { loop, big: 1n, text: "thrown" };
  app.tool({ name: "odd", parameters: { kind: { enum: Object.keys(values) } } }, ({ kind }) => {
    if (kind === "text") throw values[kind];
    return values[kind];
  });
  app.tool({ name: "nothing" }, () => undefined);
  const running = app.run();
  await peer.next();
  const error = async (kind) => {
    peer.write({ type: "toolInvocation", correlationId: 1, tool: "A:odd", parameters: { kind } });
    return (await peer.next()).result.error;
  };
  assert.match(await error("loop"), /circular/);
  assert.match(await error("big"), /BigInt/);
  assert.equal(await error("text"), "thrown");
  assert.match(await error("other"), /`kind` must be one of `loop`, `big`, `text`/);
  peer.write({ type: "toolInvocation", correlationId: 1, tool: "A:nothing" });
  assert.deepEqual((await peer.next()).result, { success: true, data: null, error: null });
  app.stop();
  await running;
  await peer.close();
});

test("a picture is MCP content", () => {
  const picture = { type: "image", data: "AQI=", mimeType: "image/png" };
  assert.deepEqual(image(new Uint8Array([1, 2])), { content: [picture] });
  assert.equal(image(new Uint8Array(), "image/gif", "a cat").content[0].text, "a cat");
  assert.equal(new ToolError("x").name, "ToolError");
});
