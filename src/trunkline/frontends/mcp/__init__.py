"""What MCP asks of us as a server, for every door: legacy conversations and modern self-describing requests."""
