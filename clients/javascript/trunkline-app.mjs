/**
 * Offer the functions of a running program as tools at a Trunkline gateway: one file, for Node 18 or newer, without
 * dependencies. Copy it into your program.
 *
 *     import { App } from "./trunkline-app.mjs";
 *
 *     const app = new App("MyApp");
 *     app.tool({ name: "greet", description: "Greet somebody", parameters: { name: { type: "string" } } },
 *       ({ name }) => `Hello ${name}`);
 *     await app.run();
 *
 * The gateway needs a source of `kind: app`. The wire is one JSON object per line; it is described in Trunkline's
 * docs/sources/app.md.
 */

import { randomBytes } from "node:crypto";
import net from "node:net";

export const DEFAULT_GATEWAY = "127.0.0.1:5100";

const MAX_LINE_BYTES = 16 * 1024 * 1024;
const MAX_WAITING = 1000;
const MAX_ERROR_CHARACTERS = 10_000;
const CONGESTED_AT_BYTES = 256 * 1024;
const CONNECT_DEADLINE_MS = 10_000;
const SEND_DEADLINE_MS = 30_000;
const ACKNOWLEDGE_DEADLINE_MS = 10_000;
const BACKOFF_FIRST_MS = 100;
const BACKOFF_BASE_MS = 250;
const BACKOFF_CAP_MS = 10_000;
const HEALTHY_AFTER_MS = 10_000;
const REFUSED_MS = 15_000; // a name that is taken or a wrong token will not change by itself within the second
const TOOL_NAME = /^[A-Za-z0-9_.-]{1,100}$/;
const LF = 10;

/**
 * A JSON Schema.
 * @typedef {Record<string, any>} JsonSchema
 *
 * What agents are told of a tool. Give `parameters` (a schema for each; those without a `default` are required) or a
 * whole `inputSchema`.
 * @typedef {object} ToolDefinition
 * @property {string} name
 * @property {string} [description]
 * @property {string} [title]
 * @property {Record<string, JsonSchema>} [parameters]
 * @property {JsonSchema} [inputSchema]
 * @property {Record<string, any>} [annotations] MCP's hints, as `{ readOnlyHint: true }`
 *
 * A call that is running.
 * @typedef {object} Call
 * @property {AbortSignal} signal aborted when nobody waits for the call any more
 * @property {(progress?: number, more?: {total?: number, message?: string, data?: unknown}) => void} progress
 *   tell the agent how far it is; `data` is a part of the result that is there already
 *
 * @callback Handler
 * @param {any} parameters checked against the schema, with defaults filled in
 * @param {Call} call
 * @returns {unknown} any JSON value, or a promise of one; an object with `content` is an MCP result
 *
 * @typedef {object} AppOptions
 * @property {string} [gateway] `host:port`, or the path of a Unix socket
 * @property {string} [token] the token of the gateway's source, where it has one
 * @property {string} [credential] by which this app takes its own name again; random if it is missing
 * @property {number} [maxConcurrent] so many calls run at once (16), the others wait
 * @property {(level: "debug" | "info" | "warning" | "error", message: string) => void} [log]
 */

/** Thrown by a tool: its text is what the agent is told, and nothing is logged. */
export class ToolError extends Error {
  name = "ToolError";
}

/** The gateway did not take the app: wrong token, or its name is taken. */
export class Refused extends Error {
  name = "Refused";

  /**
   * @param {string} code the gateway's error code
   * @param {string} reason
   */
  constructor(code, reason) {
    super(code ? `The gateway refused this app: ${reason} (${code})` : reason);
    this.code = code;
    this.reason = reason;
  }
}

/**
 * A result that an agent sees as a picture.
 * @param {Uint8Array} data
 * @param {string} [mimeType]
 * @param {string} [text] a caption
 */
export function image(data, mimeType = "image/png", text = "") {
  const picture = { type: "image", data: Buffer.from(data).toString("base64"), mimeType };
  return { content: text ? [{ type: "text", text }, picture] : [picture] };
}

/** A program with tools that dials in at a gateway. */
export class App {
  /** @type {Map<string, Tool>} */ #tools = new Map();
  /** @type {Session | null} */ #session = null;
  /** @type {AbortController | null} */ #stopping = null;
  /** @type {Signpost} */ #registration = new Signpost();
  #reregistering = false;
  #slots;
  #options;

  /**
   * @param {string} name
   * @param {AppOptions} [options]
   */
  constructor(name, options = {}) {
    if (!name || /[\p{C}:]/u.test(name)) {
      throw new TypeError(`\`${name}\` cannot be an app's name: printable text without a colon`);
    }
    this.name = name;
    this.#slots = new Slots(options.maxConcurrent ?? 16);
    this.#options = {
      address: addressOf(options.gateway ?? DEFAULT_GATEWAY),
      gateway: options.gateway ?? DEFAULT_GATEWAY,
      token: options.token,
      credential: options.credential ?? randomBytes(16).toString("hex"),
      log: options.log ?? logToStderr,
    };
  }

  /**
   * Offer a function. Also while the app runs; a tool of a known name takes the place of the old one.
   * @param {ToolDefinition} definition
   * @param {Handler} handler
   */
  tool(definition, handler) {
    const tool = new Tool(definition, handler);
    this.#tools.set(tool.name, tool);
    this.#toolsChanged();
    return this;
  }

  /**
   * Offer a tool no longer. Calls that run go on to their end.
   * @param {string} name
   */
  remove(name) {
    if (!this.#tools.delete(name)) throw new RangeError(`there is no tool \`${name}\``);
    this.#toolsChanged();
  }

  /** The names of the tools, as they are now. */
  get tools() {
    return [...this.#tools.keys()];
  }

  get isRegistered() {
    return this.#registration.isReached;
  }

  /**
   * The app's name among the gateway's servers, once it is one. Rejects with Refused if it will not be.
   * @returns {Promise<string>}
   */
  untilRegistered() {
    return this.#registration.wait();
  }

  /**
   * Stay connected until `stop` is called or `signal` aborts. A lost gateway is dialled again and again.
   * Rejects with Refused when the gateway does not take the app; once it was taken, a refusal is logged and retried.
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<void>}
   */
  async run({ signal } = {}) {
    if (this.#stopping) throw new Error(`\`${this.name}\` is running already`);
    const stopping = (this.#stopping = new AbortController());
    const stop = () => stopping.abort();
    signal?.addEventListener("abort", stop, { once: true });
    if (signal?.aborted) stop();
    this.#registration.begin();
    try {
      await this.#stayConnected(stopping.signal);
    } catch (error) {
      this.#registration.end(error);
      throw error;
    } finally {
      signal?.removeEventListener("abort", stop);
      this.#stopping = null;
      this.#registration.end(new Error(`\`${this.name}\` has stopped`));
    }
  }

  /** End `run`. Without effect where nothing runs. A tool that stops its own app still answers. */
  stop() {
    const stopping = this.#stopping;
    setImmediate(() => stopping?.abort());
  }

  /** @param {AbortSignal} stopping */
  async #stayConnected(stopping) {
    const { log, gateway } = this.#options;
    const backoff = new Backoff();
    let wasRegistered = false;
    let complained = false;
    while (!stopping.aborted) {
      let delayMs = 0;
      try {
        await this.#oneConnection(stopping, () => backoff.up());
        if (!this.isRegistered && !stopping.aborted) throw new Error("it closed the connection");
        delayMs = backoff.nextDelayMs();
      } catch (error) {
        wasRegistered ||= this.isRegistered;
        if (error instanceof Refused && !wasRegistered) throw error;
        if (error instanceof Refused) {
          delayMs = backoff.afterRefusalMs();
          log("error", `${error.message}; trying again in ${Math.round(delayMs / 1000)} s`);
        } else {
          delayMs = backoff.nextDelayMs();
          const level = complained || this.isRegistered ? "debug" : "warning";
          log(level, `No gateway for apps at ${gateway}: ${error.message}; trying again`);
          complained = true;
        }
      }
      if (this.isRegistered && !stopping.aborted) {
        log("warning", `\`${this.name}\` has lost its gateway; dialling again`);
        [wasRegistered, complained] = [true, false];
        this.#registration.begin();
      }
      await pause(delayMs, stopping);
    }
  }

  /**
   * @param {AbortSignal} stopping
   * @param {() => void} up
   */
  async #oneConnection(stopping, up) {
    const { address, gateway, log } = this.#options;
    const socket = await dialled(address, stopping);
    if (!socket || stopping.aborted) return void socket?.destroy();
    const registered = (/** @type {string} */ server) => {
      up();
      if (!this.isRegistered) log("info", `\`${this.name}\` is registered at ${gateway} as \`${server}\``);
      this.#registration.reach(server);
    };
    const session = new Session(socket, this.#slots, { ...this.#options, appName: this.name }, registered);
    this.#session = session;
    const hangUp = () => session.hangUp();
    stopping.addEventListener("abort", hangUp, { once: true });
    try {
      await session.run(this.#tools);
    } finally {
      stopping.removeEventListener("abort", hangUp);
      this.#session = null;
    }
  }

  /** Many changes at once are told once. */
  #toolsChanged() {
    if (this.#reregistering) return;
    this.#reregistering = true;
    queueMicrotask(() => {
      this.#reregistering = false;
      this.#session?.register(this.#tools);
    });
  }
}

// Tools ---------------------------------------------------------------------------------------------------------------

class Tool {
  /**
   * @param {ToolDefinition} definition
   * @param {Handler} handler
   */
  constructor({ name, description = "", title, parameters, inputSchema, annotations }, handler) {
    if (!TOOL_NAME.test(name)) {
      throw new TypeError(`\`${name}\` cannot be a tool's name: up to 100 ASCII letters, digits, \`_\`, \`-\`, \`.\``);
    }
    if (typeof handler !== "function") throw new TypeError(`tool \`${name}\` has no function`);
    if (parameters && inputSchema) {
      throw new TypeError(`tool \`${name}\`: give either \`parameters\` or \`inputSchema\``);
    }
    this.name = name;
    this.handler = handler;
    this.schema = inputSchema ?? schemaOf(parameters ?? {});
    if (this.schema.type !== "object") {
      throw new TypeError(`tool \`${name}\`: \`inputSchema\` must be of type \`object\``);
    }
    checkSchema(this.schema, `tool \`${name}\``);
    this.told = { description, inputSchema: this.schema, ...(title && { title }), ...(annotations && { annotations }) };
  }

  /** @param {string} appName */
  definition(appName) {
    return { name: `${appName}:${this.name}`, ...this.told };
  }

  /**
   * What the handler is called with. Everything that is wrong with it is said at once.
   * @param {any} given
   */
  arguments(given) {
    const parameters = given ?? {};
    if (kindOf(parameters) !== "object") throw new ToolError("The arguments must be an object");
    const problems = mismatches(parameters, this.schema, "");
    if (problems.length) throw new ToolError(`Wrong arguments for \`${this.name}\`: ${problems.join("; ")}`);
    return { ...this.#defaults(), ...parameters };
  }

  #defaults() {
    const properties = Object.entries(this.schema.properties ?? {});
    const withDefault = properties.filter(([, schema]) => Object.hasOwn(schema, "default"));
    return Object.fromEntries(withDefault.map(([name, schema]) => [name, structuredClone(schema.default)]));
  }
}

/** @param {Record<string, JsonSchema>} parameters */
function schemaOf(parameters) {
  const required = Object.keys(parameters).filter((name) => !Object.hasOwn(parameters[name], "default"));
  return { type: "object", properties: parameters, ...(required.length && { required }), additionalProperties: false };
}

const TYPES = ["string", "number", "integer", "boolean", "array", "object", "null"];

/**
 * A schema with a type that JSON does not have is a mistake of the program, and found when it is written.
 * @param {any} schema
 * @param {string} place
 */
function checkSchema(schema, place) {
  if (typeof schema === "boolean") return;
  if (kindOf(schema) !== "object") throw new TypeError(`${place}: a JSON Schema must be an object`);
  for (const type of [schema.type ?? []].flat()) {
    if (TYPES.includes(type)) continue;
    throw new TypeError(`${place}: \`${type}\` is no type of JSON; known are ${TYPES.join(", ")}`);
  }
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    checkSchema(property, `${place}, \`${name}\``);
  }
  if (schema.items) checkSchema(schema.items, `${place}, items`);
  if (schema.additionalProperties) checkSchema(schema.additionalProperties, `${place}, additionalProperties`);
  for (const choice of schema.anyOf ?? schema.oneOf ?? []) checkSchema(choice, `${place}, anyOf`);
}

/** @param {unknown} value */
function kindOf(value) {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

/** @param {unknown} value @param {string} type */
function isOf(value, type) {
  return type === "integer" ? Number.isInteger(value) : kindOf(value) === type;
}

/** @param {unknown} one @param {unknown} other */
function isSame(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}

const ARTICLES = { array: "an array", integer: "an integer", object: "an object", null: "null" };
/** @param {string} kind */
const withArticle = (kind) => ARTICLES[/** @type {keyof ARTICLES} */ (kind)] ?? `a ${kind}`;

/**
 * What is wrong with a value, each with its place. Types, choices and members are checked; the rest is for agents.
 * @param {any} value
 * @param {any} schema
 * @param {string} place
 * @returns {string[]}
 */
function mismatches(value, schema, place) {
  if (typeof schema === "boolean") return schema ? [] : [`\`${place}\` must not be there`];
  const types = [schema.type ?? []].flat();
  if (types.length && !types.some((type) => isOf(value, type))) {
    return [`\`${place}\` must be ${types.map(withArticle).join(" or ")}, not ${withArticle(kindOf(value))}`];
  }
  const allowed = "const" in schema ? [schema.const] : schema.enum;
  if (allowed && !allowed.some((/** @type {unknown} */ choice) => isSame(choice, value))) {
    const shown = allowed.map((/** @type {unknown} */ choice) => `\`${choice}\``);
    return [`\`${place}\` must be one of ${shown.join(", ")}`];
  }
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) {
    const problems = choices.map((/** @type {any} */ choice) => mismatches(value, choice, place));
    if (problems.every((/** @type {string[]} */ found) => found.length)) return [problems.flat().join(", or ")];
  }
  if (kindOf(value) === "array" && schema.items) {
    return [...value.entries()].flatMap(([at, item]) => mismatches(item, schema.items, `${place}[${at}]`));
  }
  return kindOf(value) === "object" ? memberMismatches(value, schema, place && `${place}.`) : [];
}

/**
 * @param {Record<string, any>} value
 * @param {JsonSchema} schema
 * @param {string} prefix
 */
function memberMismatches(value, schema, prefix) {
  const properties = schema.properties ?? {};
  const others = schema.additionalProperties ?? true;
  const problems = [];
  for (const [name, member] of Object.entries(value)) {
    if (Object.hasOwn(properties, name)) problems.push(...mismatches(member, properties[name], prefix + name));
    else if (others !== false) problems.push(...mismatches(member, others, prefix + name));
    else {
      const known = Object.keys(properties).map((other) => `\`${other}\``).join(", ") || "none";
      problems.push(`\`${prefix}${name}\` is not known here (known: ${known})`);
    }
  }
  for (const name of schema.required ?? []) {
    if (!Object.hasOwn(value, name)) problems.push(`\`${prefix}${name}\` is missing`);
  }
  return problems;
}

// One connection ------------------------------------------------------------------------------------------------------

/** One registration at the gateway: from the first `register` to the end of the connection. */
class Session {
  /** @type {Map<string, Tool>} */ #tools = new Map();
  /** @type {Map<number | string, AbortController>} */ #running = new Map();
  /** @type {NodeJS.Timeout | undefined} */ #unanswered;
  /** @type {Error | null} */ #failure = null;

  /**
   * @param {net.Socket} socket
   * @param {Slots} slots
   * @param {{appName: string, token?: string, credential: string, log: NonNullable<AppOptions["log"]>}} options
   * @param {(server: string) => void} registered
   */
  constructor(socket, slots, options, registered) {
    this.socket = socket;
    this.slots = slots;
    this.options = options;
    this.registered = registered;
    this.lines = new Lines((line) => this.#onLine(line), options.log);
  }

  /**
   * Until the gateway is gone. What still runs then is aborted: nobody would hear the answer.
   * @param {Map<string, Tool>} tools
   */
  async run(tools) {
    const { socket } = this;
    const ended = new Promise((resolve) => socket.once("close", resolve));
    socket.on("error", (error) => (this.#failure ??= error));
    socket.on("data", (data) => this.lines.feed(data));
    this.register(tools);
    await ended;
    clearTimeout(this.#unanswered);
    for (const controller of this.#running.values()) controller.abort();
    if (this.#failure) throw this.#failure;
  }

  hangUp() {
    this.socket.end();
    const forced = setTimeout(() => this.socket.destroy(), 2000);
    this.socket.once("close", () => clearTimeout(forced));
  }

  /**
   * Say what we offer; said again, it replaces what was said before.
   * @param {Map<string, Tool>} tools
   */
  register(tools) {
    const { appName, token, credential, log } = this.options;
    const named = [...tools.values()].map((tool) => tool.definition(appName));
    this.#tools = new Map([...tools.values()].map((tool) => [`${appName}:${tool.name}`, tool]));
    try {
      this.#post({ type: "register", appName, tools: named, credential, acknowledge: true, ...(token && { token }) });
    } catch (error) {
      log("error", `The gateway cannot be told of the tools: ${told(error)}`);
    }
    clearTimeout(this.#unanswered);
    this.#unanswered = setTimeout(() => {
      log("warning", `The gateway has not said whether it took \`${appName}\`; going on`);
    }, ACKNOWLEDGE_DEADLINE_MS);
  }

  /** @param {string} line */
  #onLine(line) {
    /** @type {any} */
    let message;
    try {
      message = JSON.parse(line);
    } catch (error) {
      this.options.log("warning", `The gateway sent a line that is not JSON: ${error}`);
      return;
    }
    if (message?.type === "registered") this.#onRegistered(message);
    else if (message?.type === "refused") this.#onRefused(message);
    else if (message?.type === "toolInvocation") this.#onInvocation(message);
    else if (message?.type === "toolCancel") this.#running.get(message.correlationId)?.abort();
    else this.options.log("debug", `The gateway sent a message of a type that is not known here: ${message?.type}`);
  }

  /** @param {any} message */
  #onRegistered(message) {
    clearTimeout(this.#unanswered);
    for (const warning of message.warnings ?? []) this.options.log("warning", `The gateway says: ${warning}`);
    this.registered(message.server ?? this.options.appName);
  }

  /** @param {any} message */
  #onRefused(message) {
    this.#failure = new Refused(message.code ?? "", message.message ?? "it gave no reason");
    this.socket.destroy();
  }

  /** @param {any} message */
  #onInvocation({ correlationId, tool: name, parameters }) {
    const tool = this.#tools.get(name);
    const { appName, log } = this.options;
    if (correlationId === undefined) {
      log("warning", "The gateway sent an invocation without a correlation id");
    } else if (!tool) {
      this.#post(failure(correlationId, `\`${appName}\` has no tool \`${name}\``));
    } else if (this.#running.size >= MAX_WAITING) {
      this.#post(failure(correlationId, `The app is busy: ${MAX_WAITING} calls of it are open`));
    } else {
      this.#call(tool, correlationId, parameters).catch((error) => log("error", `A call got lost: ${error}`));
    }
  }

  /**
   * @param {Tool} tool
   * @param {number | string} correlationId
   * @param {unknown} parameters
   */
  async #call(tool, correlationId, parameters) {
    const controller = new AbortController();
    this.#running.set(correlationId, controller);
    try {
      await this.slots.run(async () => {
        if (controller.signal.aborted) return;
        const line = await this.#outcome(tool, correlationId, parameters, controller.signal);
        this.#running.delete(correlationId);
        if (!controller.signal.aborted) await this.#send(line);
      });
    } finally {
      this.#running.delete(correlationId);
    }
  }

  /**
   * The line that answers a call.
   * @param {Tool} tool
   * @param {number | string} correlationId
   * @param {unknown} parameters
   * @param {AbortSignal} signal
   */
  async #outcome(tool, correlationId, parameters, signal) {
    try {
      const progress = this.#progressOf(correlationId, signal);
      const result = await tool.handler(tool.arguments(parameters), { signal, progress });
      const outcome = { success: true, data: result ?? null, error: null };
      return encoded({ type: "toolResponse", correlationId, result: outcome });
    } catch (error) {
      if (!(error instanceof ToolError) && !signal.aborted) {
        this.options.log("error", `Tool \`${tool.name}\` failed: ${error instanceof Error ? error.stack : error}`);
      }
      return encoded(failure(correlationId, told(error)));
    }
  }

  /**
   * Who reports faster than we can send loses some of it, not his memory.
   * @param {number | string} correlationId
   * @param {AbortSignal} signal
   * @returns {Call["progress"]}
   */
  #progressOf(correlationId, signal) {
    return (progress, { total, message, data } = {}) => {
      const isOpen = this.#running.has(correlationId) && !signal.aborted;
      if (!isOpen || this.socket.writableLength > CONGESTED_AT_BYTES) return;
      this.#post({ type: "toolProgress", correlationId, progress, total, message, data });
    };
  }

  /** @param {object} message */
  #post(message) {
    if (this.socket.writable) this.socket.write(encoded(message));
  }

  /** @param {string} line */
  async #send(line) {
    if (!this.socket.writable || this.socket.write(line)) return;
    const deadline = setTimeout(() => {
      this.options.log("warning", "The gateway has read nothing for 30 s: the connection is given up");
      this.socket.destroy();
    }, SEND_DEADLINE_MS);
    await new Promise((resolve) => {
      this.socket.once("drain", resolve);
      this.socket.once("close", resolve);
    });
    clearTimeout(deadline);
  }
}

/** @param {number | string} correlationId @param {string} error */
function failure(correlationId, error) {
  return { type: "toolResponse", correlationId, result: { success: false, data: null, error } };
}

/** What an agent is told: the kind and the text, never a stack. @param {unknown} error */
function told(error) {
  if (!(error instanceof Error)) return String(error).slice(0, MAX_ERROR_CHARACTERS);
  if (error instanceof ToolError) return error.message.slice(0, MAX_ERROR_CHARACTERS) || "the tool failed";
  return (error.message ? `${error.name}: ${error.message}` : error.name).slice(0, MAX_ERROR_CHARACTERS);
}

/** @param {object} message */
function encoded(message) {
  const line = `${JSON.stringify(message)}\n`;
  const size = Buffer.byteLength(line);
  if (size <= MAX_LINE_BYTES) return line;
  throw new ToolError(`The message has ${size} bytes; at most ${MAX_LINE_BYTES} can be sent`);
}

/** Bytes to lines, however they were cut. A line over the limit costs only itself. */
class Lines {
  /** @type {Buffer[]} */ #rest = [];
  #size = 0;
  #skipping = false;

  /**
   * @param {(line: string) => void} take
   * @param {NonNullable<AppOptions["log"]>} log
   */
  constructor(take, log) {
    this.take = take;
    this.log = log;
  }

  /** @param {Buffer} data */
  feed(data) {
    let start = 0;
    for (let end = data.indexOf(LF); end >= 0; end = data.indexOf(LF, start)) {
      this.#keep(data.subarray(start, end));
      start = end + 1;
      const line = Buffer.concat(this.#rest).toString("utf8").trim();
      this.#forget();
      this.#skipping = false;
      if (line) this.take(line);
    }
    this.#keep(data.subarray(start));
  }

  /** @param {Buffer} piece */
  #keep(piece) {
    if (this.#skipping || !piece.length) return;
    this.#rest.push(piece);
    this.#size += piece.length;
    if (this.#size > MAX_LINE_BYTES) {
      this.log("warning", `The gateway sent a line of more than ${MAX_LINE_BYTES} bytes, which is ignored`);
      this.#forget();
      this.#skipping = true;
    }
  }

  #forget() {
    this.#rest = [];
    this.#size = 0;
  }
}

// Dialling ------------------------------------------------------------------------------------------------------------

/**
 * A path has a slash in it; anything else is `host:port`.
 * @param {string} text
 * @returns {net.NetConnectOpts}
 */
function addressOf(text) {
  if (text.includes("/")) return { path: text };
  const match = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text);
  if (!match || Number(match[3]) > 65_535) {
    throw new TypeError(`\`${text}\` is neither \`host:port\` nor the path of a socket`);
  }
  return { host: match[1] ?? match[2], port: Number(match[3]) };
}

/**
 * @param {net.NetConnectOpts} address
 * @param {AbortSignal} stopping
 * @returns {Promise<net.Socket | null>} null when stopped meanwhile
 */
function dialled(address, stopping) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(address);
    const deadline = setTimeout(() => socket.destroy(new Error("it did not answer in time")), CONNECT_DEADLINE_MS);
    const giveUp = () => socket.destroy(new Error("stopped"));
    const settle = () => {
      clearTimeout(deadline);
      stopping.removeEventListener("abort", giveUp);
      socket.removeListener("error", failed);
    };
    const failed = (/** @type {Error} */ error) => {
      settle();
      if (stopping.aborted) resolve(null);
      else reject(error);
    };
    stopping.addEventListener("abort", giveUp, { once: true });
    socket.once("error", failed);
    socket.once("connect", () => {
      settle();
      socket.setNoDelay(true).setKeepAlive(true, 30_000);
      resolve(socket);
    });
  });
}

/** How long to wait before dialling again: longer and longer, and never in step with other apps. */
class Backoff {
  #failures = 0;
  #upSince = 0;

  up() {
    this.#upSince = Date.now();
  }

  nextDelayMs() {
    if (this.#upSince && Date.now() - this.#upSince >= HEALTHY_AFTER_MS) this.#failures = 0;
    this.#upSince = 0;
    this.#failures += 1;
    if (this.#failures === 1) return Math.random() * BACKOFF_FIRST_MS;
    const highest = Math.min(BACKOFF_CAP_MS, BACKOFF_BASE_MS * 2 ** Math.min(this.#failures - 1, 10));
    return highest / 2 + (Math.random() * highest) / 2;
  }

  afterRefusalMs() {
    this.#upSince = 0;
    return REFUSED_MS + Math.random() * REFUSED_MS;
  }
}

/** @param {number} ms @param {AbortSignal} stopping */
function pause(ms, stopping) {
  return new Promise((/** @type {(value?: unknown) => void} */ resolve) => {
    if (stopping.aborted) return resolve();
    const end = () => {
      clearTimeout(timer);
      stopping.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    stopping.addEventListener("abort", end);
  });
}

/** Something that is reached, lost and reached again, and can be waited for. */
class Signpost {
  /** @type {((value: string) => void)} */ #resolve = () => {};
  /** @type {((error: unknown) => void)} */ #reject = () => {};
  /** @type {Promise<string>} */ #promise = this.#fresh();
  isReached = false;
  #isOver = false;

  #fresh() {
    /** @type {Promise<string>} */
    const promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    promise.catch(() => {}); // nobody need wait
    return promise;
  }

  begin() {
    if (this.isReached || this.#isOver) this.#promise = this.#fresh();
    this.isReached = this.#isOver = false;
  }

  /** @param {string} value */
  reach(value) {
    this.isReached = true;
    this.#resolve(value);
  }

  /** There will be none any more; the first reason is the true one. @param {unknown} reason */
  end(reason) {
    if (this.#isOver) return;
    if (this.isReached) this.#promise = this.#fresh();
    this.isReached = false;
    this.#isOver = true;
    this.#reject(reason);
  }

  wait() {
    return this.#promise;
  }
}

/** How many calls run at once; the others wait in line. */
class Slots {
  /** @type {(() => void)[]} */ #waiting = [];

  /** @param {number} count */
  constructor(count) {
    if (!(count >= 1)) throw new TypeError("`maxConcurrent` must be at least 1");
    this.free = count;
  }

  /** @param {() => Promise<void>} work */
  async run(work) {
    if (this.free > 0) this.free -= 1;
    else await new Promise((/** @type {(value?: unknown) => void} */ resolve) => this.#waiting.push(resolve));
    try {
      await work();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.free += 1;
    }
  }
}

/** @param {string} level @param {string} message */
function logToStderr(level, message) {
  if (level !== "debug" && level !== "info") console.error(`trunkline: ${level}: ${message}`);
}
