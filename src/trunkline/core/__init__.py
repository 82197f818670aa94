"""Plain data and protocols: tools, calls, sources, errors, names. Standard library only, no I/O."""
