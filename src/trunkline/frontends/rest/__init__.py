"""The REST frontend: tools, health and the OpenAPI document for programs without MCP."""
