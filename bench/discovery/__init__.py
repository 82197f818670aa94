"""How well tools are found, what finding them costs, and how much of a client's context it saves.

`python -m bench.discovery` measures in three parts and writes one report:

- quality: recall, MRR and NDCG on query sets, beside plain BM25 and FastMCP's own tool search;
- cost: index, change, query and encoding times and memory on catalogs of 5,000 and 20,000 tools;
- context: the tokens that a real MCP client is sent by a real gateway, in every mode of disclosure.

README.md says where the query sets come from and how their folder looks.
"""
