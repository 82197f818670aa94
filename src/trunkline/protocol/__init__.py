"""Sans-io codecs: bytes in, messages out. No sockets, no event loop."""
