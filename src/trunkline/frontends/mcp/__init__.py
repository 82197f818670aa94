"""MCP as a server, for every frontend: legacy sessions and modern self-describing requests."""
