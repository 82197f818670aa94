"""MCP servers as sources: sessions over each transport, initialization, lists, subscriptions, and the source itself."""
