"""The gateway inside another program: `from trunkline import Gateway`."""
