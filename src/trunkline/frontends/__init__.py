"""The ways in: MCP over HTTP and stdio, REST, and the relay that joins a running gateway."""
