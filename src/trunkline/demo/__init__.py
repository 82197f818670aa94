"""Small MCP servers for the first minute with Trunkline: `python -m trunkline.demo clock` or `… text`."""
