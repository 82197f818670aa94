"""One path for every call: names to sources, health, limits, deadlines."""
