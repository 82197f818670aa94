"""The relay: a stdio client joined to a gateway that already runs."""
