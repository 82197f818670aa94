"""MCP over HTTP, health and metrics, on one port."""
