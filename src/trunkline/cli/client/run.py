"""Runs a command against a gateway: waiting, Ctrl+C, and errors, which every command shows alike."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click

from trunkline.cli.client.gateway_client import GatewayClient, open_client
from trunkline.cli.client.target import find_target
from trunkline.cli.interrupts import INTERRUPTED
from trunkline.cli.spinner import Spinner, spinning
from trunkline.cli.terminal import print_failure
from trunkline.core.call import Outcome
from trunkline.core.errors import GatewayError
from trunkline.runtime.process_setup import run_event_loop, unignored_signals

T = TypeVar("T")
_CHECK_DELAY_S: Final = 1.5


def run_with_client(
    request: Callable[[GatewayClient, Spinner], Awaitable[T]],
    show: Callable[[T], int],
    config: Path | None,
    url: str | None,
    *,
    tool: str = "",
    message: str = "asking the gateway",
    if_cancelled: str = "",
) -> NoReturn:
    """Send a request, show the result, and exit with what `show` returns; errors are shown, and decide the status.

    `tool` names the tool it is about, `message` is what the spinner shows first, `if_cancelled` what Ctrl+C did.
    """
    spinner = Spinner(message)
    has_result = False

    async def answer() -> int:
        nonlocal has_result
        async with AsyncExitStack() as stack:
            async with spinning(spinner):
                client = await stack.enter_async_context(open_client(target, spinner.update, tool=tool))
                result = await request(client, spinner)
            has_result = True
            return show(result)  # before servers that were started for it are ended, which may take a while

    try:
        target = find_target(config, url)
        status = run_event_loop(lambda: _cancelled_by_signals(answer(), spinner))
    except GatewayError as error:
        status = print_failure(error)
    except asyncio.CancelledError:
        click.echo(f"interrupted{f': {if_cancelled}' if if_cancelled and not has_result else ''}", err=True)
        status = INTERRUPTED
    sys.exit(status)


async def _cancelled_by_signals(work: Coroutine[Any, Any, T], spinner: Spinner) -> T:
    """Ctrl+C cancels the request, here and at the gateway; a second one ends the program at once."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    presses = 0

    def pressed() -> None:
        nonlocal presses
        presses += 1
        if presses > 1:
            spinner.clear()
            os._exit(INTERRUPTED)
        spinner.update("interrupted: cleaning up")
        task.cancel()

    for number in unignored_signals(signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, pressed)
    return await task


async def show_delays(call: Awaitable[Outcome], client: GatewayClient, name: str, spinner: Spinner) -> Outcome:
    """Wait for a call. While it takes long, the spinner says what it waits for, such as a server that is starting."""
    calling = asyncio.ensure_future(call)
    try:
        while not calling.done():
            await asyncio.wait([calling], timeout=_CHECK_DELAY_S)
            if not calling.done():
                spinner.update(await client.delay_reason(name))
        return calling.result()
    finally:
        calling.cancel()
        await asyncio.wait([calling])
