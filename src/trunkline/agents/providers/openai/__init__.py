"""A model behind a chat completions API, with our tools as the only ones it has: we are its agent."""
