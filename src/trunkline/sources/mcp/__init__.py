"""The client side of MCP: lanes to one server, the handshakes of both eras, lists, and the source built on them."""
