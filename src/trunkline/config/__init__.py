"""The configuration file: YAML or JSON in, settings or every problem at once out. Knows no kind of source by name."""
