"""Finding tools by what they do: words, meaning, and what a definition costs a model to read."""
