"""Plugins that speak gRPC after the go-plugin handshake: their processes, their channel and their calls."""
