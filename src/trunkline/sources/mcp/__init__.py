"""The client side of MCP: sessions to one server, the handshakes of both eras, lists, and the source built on them."""
