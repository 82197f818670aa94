"""What operators see: one log line per call, the metrics behind `/metrics`, and spans.

Everything here subscribes to `core.events` and nothing here steers: a full disk, a stuck terminal or a strange tool
name costs a log line, never a call. The modules about spans and their exporters are loaded only if calls are traced.
"""
