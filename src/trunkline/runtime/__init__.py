"""The I/O that sources share: child processes and their supervisor, HTTP connections, MCP lanes, backoff."""
