"""MCP over lines of JSON: stdin and stdout, and the private socket of an agent run."""
