"""The gateway embedded in another program: `from trunkline import Gateway`."""
