"""Finding files and text below a folder: walking, ignore rules, globs, ripgrep, and the process that does it all.

Everything here also runs in the worker process, which has the standard library and no more: keep imports light.
"""
