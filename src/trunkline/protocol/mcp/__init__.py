"""What MCP adds to JSON-RPC: versions, handshakes, per-request metadata. Pure functions on bytes."""
