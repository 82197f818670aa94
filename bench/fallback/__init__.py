"""Stand-ins for the C programs, standard library only, for machines without a compiler.

They take the same arguments and print the same things. They are slow enough to hide differences between fast peers,
so results made with them say so.
"""
