"""Running a gateway behind a door until it is told to stop: start, signals, drain, end."""
