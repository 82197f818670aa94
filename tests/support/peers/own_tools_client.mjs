// Calls the gateway's own tools with the TypeScript SDK, which checks each answer against its outputSchema:
// own_tools_client.mjs SDK_FOLDER URL; one JSON report on stdout.
import { pathToFileURL } from "node:url";

const [folder, url] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(`${folder}/dist/esm/${path}`).href);
const { Client } = await load("client/index.js");
const { StreamableHTTPClientTransport } = await load("client/streamableHttp.js");

const client = new Client({ name: "node-client", version: "1" }, { capabilities: {} });
const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);
const report = {};
report.tools = (await client.listTools()).tools.map((tool) => tool.name);
const call = async (name, input = {}) => (report[name] = await client.callTool({ name, arguments: input }));
await call("list_servers");
await call("server_health");
await call("list_tools");
await call("find_tool", { query: "add numbers" });
await call("registry_summary");
report.refused = await client.callTool({ name: "server_health", arguments: { server: "pear" } });
await transport.terminateSession();
await client.close();
console.log(JSON.stringify(report));
