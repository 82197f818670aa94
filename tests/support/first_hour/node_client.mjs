// A client on the TypeScript SDK that stays connected: node_client.mjs SDK_FOLDER URL.
// It lists the tools at first and whenever it is told that they changed, and writes the names each time.
// A line on stdin is a call; its outcome is written under the same id.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [folder, url] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(`${folder}/dist/esm/${path}`).href);
const { Client } = await load("client/index.js");
const { StreamableHTTPClientTransport } = await load("client/streamableHttp.js");
const { ToolListChangedNotificationSchema } = await load("types.js");

const write = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
const client = new Client({ name: "claude-code", version: "1" }, { capabilities: {} });
const look = async () => write({ view: (await client.listTools()).tools.map((tool) => tool.name) });
const call = async ({ id, ...request }) => {
    try {
        write({ id, result: await client.callTool(request) });
    } catch (error) {
        const message = error.message.replace(/^MCP error -?\d+: /, ""); // which the SDK puts in front
        write({ id, error: { code: error.code, message } });
    }
};

client.setNotificationHandler(ToolListChangedNotificationSchema, look);
const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);
await look();
for await (const line of createInterface({ input: process.stdin })) void call(JSON.parse(line));
await transport.terminateSession();
await client.close();
