"""How far the estimate of tokens is from what real tokenizers count.

Once: `npm ci` in this folder. Then `TOOL_DATA=folder python -m bench.discovery.tokenizers` prints the tables, and
`python -m bench.discovery.tokenizers --samples` counts anew what the unit tests compare the estimate with.
"""
