"""I/O below the sources: child processes and their supervisor, pipes, sockets, HTTP, deadlines, private files."""
