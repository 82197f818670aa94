"""A running gateway: the composition root, serving, reloads, and the gateway as a library."""
