"""A misbehaving MCP server in a process of its own: `python -I -S fault_server.py '{"transport": "stdio"}'`.

The standard library only and few imports, because tests start hundreds of these. What goes wrong is chosen by the name
of the tool that is called (fault/tools.py, fault/protocol_violations.py) or, for faults of a whole process, by
`faults` in the options (fault/options.py).
"""

from __future__ import annotations

import sys
from os.path import abspath, dirname

sys.path.insert(0, dirname(dirname(dirname(abspath(__file__)))))

from tests.support.fault.options import Options


def main() -> None:
    options = Options.parse(sys.argv[1] if len(sys.argv) > 1 else "{}")
    if options.transport == "stdio":
        from tests.support.fault.over_stdio import serve
    else:
        from tests.support.fault.over_http import serve
    serve(options)


if __name__ == "__main__":
    main()
