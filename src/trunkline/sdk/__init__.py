"""Three ways for a program to offer its functions to agents, each a module with `__all__`.

- `client`: a running program dials in at a Trunkline gateway (`App`).
- `mcpserver`: a program is an MCP server of its own (`Server`).
- `plugin`: a program is a plugin that a host starts and calls over gRPC (`Plugin`).

The folder needs the standard library only (`plugin` also `grpcio`, once it serves) and nothing else of Trunkline: it
can be copied into another program under any name.
"""
