// Runs a tool of the reference server as a task of 2025-11-25, on the TypeScript SDK:
// task_client.mjs SDK_FOLDER TOOL (URL | COMMAND ARG…); one JSON report on stdout.
import { pathToFileURL } from "node:url";

const [folder, tool, target, ...args] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(`${folder}/dist/esm/${path}`).href);
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");
const { StreamableHTTPClientTransport } = await load("client/streamableHttp.js");
const { CallToolResultSchema, ElicitRequestSchema } = await load("types.js");

const client = new Client({ name: "task-client", version: "1" }, { capabilities: { elicitation: {} } });
const report = { asked: [], ids: [], states: [] };
client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
    report.asked.push({ message: params.message, related: params._meta?.["io.modelcontextprotocol/related-task"]?.taskId });
    return { action: "accept", content: { interpretation: "snake" } };
});

const transport = /^https?:/.test(target)
    ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({ command: target, args, stderr: "ignore" });
await client.connect(transport);
report.offered = client.getServerCapabilities().tasks;
await client.listTools(); // from which the SDK knows that the tool must be run as a task

const call = { name: tool, arguments: { topic: "python", ambiguous: true } };
const stream = client.experimental.tasks.callToolStream(call, CallToolResultSchema, { task: { ttl: 60_000 } });
for await (const message of stream) {
    if (message.task) {
        report.ids.push(message.task.taskId);
        report.states.push(message.task.status);
    }
    if (message.type === "result") report.text = message.result.content[0].text;
    if (message.type === "error") report.error = String(message.error);
}
report.after = (await client.experimental.tasks.getTask(report.ids[0])).status;
if (transport.terminateSession) await transport.terminateSession();
await client.close();
console.log(JSON.stringify(report));
