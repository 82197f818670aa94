"""As much of `curl` as the documentation uses, for machines that have none: `-s`, `-H`, `-X`, `-d` and a URL."""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request

_ANSWER_S = 30.0


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="curl")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-X", dest="method")
    parser.add_argument("-d", dest="data")
    parser.add_argument("url")
    asked = parser.parse_args(words)
    request = urllib.request.Request(asked.url, asked.data and asked.data.encode(), method=asked.method)
    for header in asked.headers:
        name, _, value = header.partition(":")
        request.add_header(name, value.strip())
    try:
        answer = urllib.request.urlopen(request, timeout=_ANSWER_S)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        sys.stdout.write(answer.read().decode())


if __name__ == "__main__":
    main(sys.argv[1:])
