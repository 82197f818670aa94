"""The ways in: MCP over stdio, MCP over HTTP."""
