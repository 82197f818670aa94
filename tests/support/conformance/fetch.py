"""Runs a program of the stock (`stock.py`) as if it had been started here: `fetch.py SOCKET MODULE ARGUMENTS…`.

It is started often and does nothing itself, so it imports as little as possible. Its three streams, its folder and its
environment become the program's; it ends with the program, and the program with it.
"""

import marshal
import os
import signal
import socket
import sys


def main() -> int:
    path, module, *arguments = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with socket.socket(socket.AF_UNIX) as stock:
        stock.connect(path)
        order = marshal.dumps((module, arguments, os.getcwd(), dict(os.environ)))
        socket.send_fds(stock, [len(order).to_bytes(4, "big")], [0, 1, 2])
        stock.sendall(order)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):  # else whoever reads would not hear of the program's end
            os.dup2(nowhere, stream)
        status = stock.recv(1)
    return status[0] if status else 1


if __name__ == "__main__":
    os._exit(main())
