"""Small MCP servers to try Trunkline with, made with `trunkline.mcpserver`.

`trunkline demo` runs the gateway with all of them. Each also runs by itself: `python -m trunkline.demo NAME` speaks
MCP over stdio, and `python -m trunkline.demo NAME --http PORT` over Streamable HTTP.
"""
