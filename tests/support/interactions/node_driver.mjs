// Clients on the TypeScript SDK, for tests in another language: node_driver.mjs CLIENT_FOLDER; prints its port.
// One connection is one client: JSON lines in both directions, and what the client is asked is asked of the test.
import { createServer } from "node:net";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [folder] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(`${folder}/dist/${path}`).href);
const { Client, StreamableHTTPClientTransport } = await load("index.mjs");
const { StdioClientTransport } = await load("stdio.mjs");

const MODERN = "2026-07-28";
const PATIENCE = { timeout: 30_000 * Number(process.env.TEST_ROOM || 1) };
const NOTICES = ["tools/list_changed", "prompts/list_changed", "resources/list_changed", "resources/updated", "message", "elicitation/complete"];
const CAPABILITIES = { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } };
const QUESTIONS = { sampling: "sampling/createMessage", elicitation: "elicitation/create", roots: "roots/list" };

// a class of its own is probed in place: the SDK would start the program of its own class once more, for the probe alone
class OneProcess extends StdioClientTransport {}

class Driven {
    constructor(socket) {
        this.socket = socket;
        this.running = new Map();
        this.asked = new Map();
        this.subscriptions = new Map();
        createInterface({ input: socket }).on("line", (line) => this.take(JSON.parse(line)));
        socket.on("close", () => this.leave());
        socket.on("error", () => this.leave());
    }

    say(message) {
        if (!this.socket.destroyed) this.socket.write(JSON.stringify(message) + "\n");
    }

    async take(message) {
        if ("answer" in message) {
            this.asked.get(message.answer)(message.result);
            return;
        }
        try {
            this.say({ id: message.id, result: (await this[message.do](message)) ?? {} });
        } catch (error) {
            const { code, message: text, data } = error;
            this.say({ id: message.id, error: { code: code ?? null, message: String(text), data: data ?? null } });
        }
    }

    async connect({ era, url, command, env, declares }) {
        const capabilities = Object.fromEntries(declares.map((what) => [what, CAPABILITIES[what]]));
        const versionNegotiation = { mode: era === "modern" ? { pin: MODERN } : "legacy" };
        this.client = new Client({ name: "typescript", version: "1" }, { capabilities, versionNegotiation });
        for (const what of declares) {
            this.client.setRequestHandler(QUESTIONS[what], (request) => this.ask(request.method, request.params));
        }
        for (const notice of NOTICES) {
            const method = `notifications/${notice}`;
            this.client.setNotificationHandler(method, ({ params }) => this.say({ event: "notice", method, params }));
        }
        const watched = async (...request) => {
            const response = await fetch(...request);
            if (request[1]?.method === "GET") this.say({ event: "stream" });
            return response;
        };
        this.transport = url
            ? new StreamableHTTPClientTransport(new URL(url), { fetch: watched })
            : new OneProcess({ command: command[0], args: command.slice(1), env, stderr: "ignore" });
        await this.client.connect(this.transport, PATIENCE);
        return {
            version: this.client.getNegotiatedProtocolVersion(),
            capabilities: this.client.getServerCapabilities(),
            instructions: this.client.getInstructions() ?? null,
            server: this.client.getServerVersion()?.name,
        };
    }

    ask(method, params) {
        const ask = this.asked.size + 1;
        const answered = new Promise((resolve) => this.asked.set(ask, resolve));
        this.say({ event: "ask", ask, method, params });
        return answered;
    }

    async request({ id, method, params, progress }) {
        const taken = new AbortController();
        this.running.set(id, taken);
        const options = { ...PATIENCE, signal: taken.signal };
        if (progress) options.onprogress = (step) => this.say({ event: "progress", of: id, step });
        const { client } = this;
        const verbs = {
            "tools/call": () => client.callTool(params, options),
            "prompts/get": () => client.getPrompt(params, options),
            "resources/read": () => client.readResource(params, { ...options, cacheMode: "bypass" }),
            "completion/complete": () => client.complete(params, options),
            "logging/setLevel": () => client.setLoggingLevel(params.level, options),
            "resources/subscribe": () => client.subscribeResource(params, options),
            "resources/unsubscribe": () => client.unsubscribeResource(params, options),
        };
        try {
            return await (verbs[method] ?? (() => client.request({ method, params }, options)))();
        } finally {
            this.running.delete(id);
        }
    }

    async cancel({ of }) {
        this.running.get(of)?.abort("no longer wanted");
    }

    async listen({ id, filter }) {
        const subscription = await this.client.listen(filter, PATIENCE);
        this.subscriptions.set(id, subscription);
        return { honored: subscription.honored ?? subscription.honoredFilter ?? filter };
    }

    async unlisten({ of }) {
        await this.subscriptions.get(of).close();
    }

    async close() {
        if (this.transport?.terminateSession) await this.transport.terminateSession().catch(() => {});
        await this.client?.close();
        this.client = undefined;
    }

    leave() {
        this.close().catch(() => {});
    }
}

const server = createServer((socket) => new Driven(socket));
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit(0)).resume();
