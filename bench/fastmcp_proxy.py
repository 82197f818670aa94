"""FastMCP's proxy as its documentation starts one: run by the bench as a program of its own.

`fastmcp_proxy.py TARGET [PORT]`: TARGET is a URL or a file with `mcpServers`; without a port it speaks on stdio.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fastmcp.server import create_proxy


def main() -> None:
    target, *port = sys.argv[1:]
    proxy = create_proxy(target if "://" in target else json.loads(Path(target).read_text()))
    if port:
        # no access log: what a peer can leave out for speed, it may leave out here
        quiet = {"log_level": "warning", "access_log": False}
        proxy.run(transport="http", host="127.0.0.1", port=int(port[0]), show_banner=False, uvicorn_config=quiet)
    else:
        proxy.run(transport="stdio", show_banner=False)


if __name__ == "__main__":
    main()
