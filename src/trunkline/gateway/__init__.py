"""Gateways: joined from their parts, served, changed while they run, and embedded in other programs."""
