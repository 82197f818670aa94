"""The agent for models behind a chat completions API: a conversation in which our tools are the model's only ones."""
