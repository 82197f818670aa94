// A client on the TypeScript SDK: node_client.mjs SDK_FOLDER NAME (URL | COMMAND ARG…); one JSON report on stdout.
import { pathToFileURL } from "node:url";

const [folder, name, target, ...args] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(`${folder}/dist/esm/${path}`).href);
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");
const { StreamableHTTPClientTransport } = await load("client/streamableHttp.js");
const { ToolListChangedNotificationSchema } = await load("types.js");

const client = new Client({ name: "node-client", version: "1" }, { capabilities: {} });
let announce;
const announced = new Promise((resolve) => (announce = resolve));

const transport = /^https?:/.test(target)
    ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({ command: target, args, stderr: "ignore" });
await client.connect(transport);

const report = { server: client.getServerVersion().name };
report.tools = (await client.listTools()).tools.map((tool) => tool.name);
const call = (tool, input, options) => client.callTool({ name: `peer_${tool}`, arguments: input }, undefined, options);
report.add = (await call("add", { a: 2, b: 3 })).structuredContent;
report.picture = (await call("picture", {})).content[0].mimeType;
report.fail = await call("fail", { reason: "out of paper" });
report.refuse = await call("refuse", { reason: "not today" }).catch((error) => ({ code: error.code, data: error.data }));
report.work = (await call("work", { steps: 3 }, { onprogress: () => {} })).content[0].text;
report.progress = [];
const taken = new AbortController();
const onprogress = (progress) => {
    report.progress.push(progress);
    taken.abort("no longer wanted");
};
report.held = await call("hold", { name }, { signal: taken.signal, onprogress }).catch(() => "aborted");
report.ping = await client.ping();
client.setNotificationHandler(ToolListChangedNotificationSchema, () => announce(true));
await call("grow", { name: `grown_${name}` });
report.announced = await announced;
report.grown = (await call(`grown_${name}`, {})).content[0].text;
if (transport.terminateSession) await transport.terminateSession();
await client.close();
console.log(JSON.stringify(report));
