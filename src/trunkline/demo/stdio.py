"""A demo server on its standard input and output: one message a line."""

from __future__ import annotations

import sys

from trunkline.demo.rpc import RpcServer


def serve_stdio(server: RpcServer) -> None:
    """Until the input ends, or nobody reads the output any more."""
    try:
        for line in sys.stdin.buffer:
            if not line.strip():
                continue
            answer = server.answer(line)
            if answer is not None:
                sys.stdout.buffer.write(answer + b"\n")
                sys.stdout.buffer.flush()
    except BrokenPipeError:
        # what is still buffered has no reader: let the interpreter not try again as it ends
        sys.stdout = None
    except KeyboardInterrupt:
        return
