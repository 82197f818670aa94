"""Plain data and protocols: what a tool, a call, a source and a problem are. Standard library only; no I/O."""
