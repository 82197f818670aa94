"""The index of tools: how they are ranked by words and by meaning. Loaded with numpy, when somebody first searches."""
