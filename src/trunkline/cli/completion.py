"""`trunkline completion`, and the values that are completed: error codes, and servers of the configuration file.

Completion runs whenever the tab key is pressed. It returns nothing rather than something wrong, and never fails.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class

_PROGRAM: Final = "trunkline"


@click.command(short_help="Print the completion script for a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that lets a shell complete commands, options and names.

    \b
    bash:  add to ~/.bashrc:  eval "$(trunkline completion bash)"
    zsh:   add to ~/.zshrc, after compinit:  eval "$(trunkline completion zsh)"
    fish:  trunkline completion fish > ~/.config/fish/completions/trunkline.fish

    A line in a start-up file runs Trunkline whenever a shell starts. To avoid that, write the script to a file once,
    and source that file.
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(ctx.find_root().command, {}, _PROGRAM, f"_{_PROGRAM.upper()}_COMPLETE").source())


def complete_codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete error codes, written as `TL305`, `tl305` or `305`."""
    from trunkline.core.errors import CODES

    written = incomplete.upper()
    prefix = written if written.startswith("T") else f"TL{written}"
    return [CompletionItem(code.id, help=code.title) for code in CODES.values() if code.id.startswith(prefix)]


def complete_servers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the servers of the file named by `-c`, or of the one that would be found, if it is trusted."""
    import os

    try:
        from trunkline.config.edit.servers import ConfigText, server_names
        from trunkline.config.files import find_config
        from trunkline.config.trust import trust_verdict

        file = find_config(ctx.params.get("config"), Path(), Path.home())
        if file is None or not file.path.is_file():
            return []
        text = ConfigText(file.path, file.path.read_text(encoding="utf-8-sig"), os.environ, {})
        verdict = trust_verdict(file, text.tree(), os.environ)
        names = server_names(text) if verdict is None or verdict.is_trusted else []
    except Exception:  # no file, however broken, may print a traceback into the command line
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
