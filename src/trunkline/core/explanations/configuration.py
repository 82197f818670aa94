"""The codes 1xx: what can be wrong with the configuration file."""

from __future__ import annotations

from typing import Final

from trunkline.core.explanations.explanation import Explanation

CONFIGURATION: Final = {
    "TL100": Explanation(
        "The configuration file, or a file that it refers to, is not there or cannot be read by Trunkline.",
        (
            "no `trunkline.yaml` in this folder or in `~/.config/trunkline`",
            "a mistyped `-c FILE`",
            "the file belongs to another user",
            "it is a pipe that nobody writes to, or a socket",
            "a server's `envFile`, or a reference like `{file:token.txt}`, names a file that is not there",
        ),
        (
            "name the file: `trunkline check -c FILE`",
            "make a first one: `trunkline add NAME -- COMMAND…` writes `trunkline.yaml`",
            "check who may read it: `ls -l FILE`",
        ),
    ),
    "TL101": Explanation(
        "The text of the file breaks the rules of its format, so nothing in it could be read.",
        (
            "YAML that is indented with tabs, or by different amounts at one level",
            "a quote or bracket that is never closed",
            "JSON with a comma before a closing bracket",
            "a value with `: ` in it that has no quotes",
            "a file that is not saved as UTF-8",
        ),
        (
            "go to the line and column of the message; the mistake is there or just above",
            "put quotes round values with special characters",
        ),
    ),
    "TL102": Explanation(
        "A key that Trunkline does not know. It is refused, because a key that is silently ignored is a setting you "
        "believe in and do not have.",
        (
            "a typing mistake; the hint names the nearest key",
            "a key on the wrong level",
            "our own keys (`prefix`, `tools`, `sessions` …) under `mcpServers`, where clients' keys stand",
            "a file for a newer version",
        ),
        (
            "correct or remove the key",
            "move an entry that needs keys of our own from `mcpServers` to `sources`, and give it a `kind`",
        ),
    ),
    "TL103": Explanation(
        "The key is known, but its value is of another type: a list where text belongs, text where a number belongs.",
        (
            "`args: --verbose` instead of `args: [--verbose]`",
            "quotes round a number or round `true`",
            "a `${NAME}` that does not hold a number",
            "a key with nothing after it",
        ),
        ("write the value as the message asks; an editor that uses `trunkline.schema.json` shows each type",),
    ),
    "TL104": Explanation(
        "The value has the right type but is not one that makes sense here. As a warning: it is allowed, but hardly "
        "what was meant.",
        (
            "a number outside its limits",
            "a word that is not one of the choices",
            "a URL without `http://` or `https://`",
            "a command with its arguments in one text",
            "a client's `timeout` given in seconds: under `mcpServers` it counts milliseconds",
        ),
        ("the message says what is allowed; change the value accordingly",),
    ),
    "TL105": Explanation(
        "A key is missing without which the entry means nothing.",
        ("a server without `command` and without `url`", "an entry under `sources` without `kind`"),
        ("add the key; the hint says what it is for",),
    ),
    "TL106": Explanation(
        "The same name stands twice, and the two would contradict each other. `trunkline add` says this too when the "
        "name is taken.",
        (
            "a copied entry whose name was not changed",
            "one name under `mcpServers` and under `sources`",
        ),
        (
            "rename or remove one; the message has the line of the first",
            "`trunkline add --force` replaces the entry that is there",
        ),
    ),
    "TL107": Explanation(
        "YAML versions disagree about this unquoted value: `no` may be text or false, `010` eight or ten, `22:22` a "
        "time or a number. Trunkline does not guess.",
        ("`yes`, `no`, `on` or `off` without quotes", "a number with a leading zero, with `_`, or with `:`"),
        ("put the value in quotes for text, or write `true`, `false` or a plain decimal number",),
    ),
    "TL108": Explanation(
        "The file is too large, or its aliases multiply into far more than is written.",
        ("not a configuration file at all", "YAML aliases inside aliases"),
        ("check that the right file is named", "write values out instead of using aliases"),
    ),
    "TL109": Explanation(
        "Lists and groups stand inside each other far more deeply than any setting needs.",
        ("not a configuration file at all", "brackets that are opened again and again"),
        ("check that the right file is named",),
    ),
    "TL110": Explanation(
        "The file refers to an environment variable, `${NAME}`, that is not set where Trunkline runs. In a server it "
        "is a warning: that server is down and says why, and all others start. Under `gateway` it is an error.",
        (
            "the variable is set in your shell, but not for the service or the program that starts Trunkline",
            "a mistyped name",
            "an `.env` file that nobody loads",
            "`${input:ID}` in a file of VS Code, which asks for it; Trunkline takes it from `INPUT_ID`",
        ),
        (
            "set the variable in the environment of the gateway, and start it again",
            "give a default: `${NAME:-value}`, or `${NAME:-}` for nothing",
            "write `$${` where a plain `${` is meant",
        ),
    ),
    "TL111": Explanation(
        "A source cannot have this name. Names become part of tools' names, and every model must be able to write "
        "those.",
        ("blanks, dots or accents in the name", "the name `trunkline`, which the gateway's own tools have"),
        ("use letters, digits, `_` and `-`",),
    ),
    "TL112": Explanation(
        "The gateway was told to listen where other machines can reach it, but without a token. Anybody there could "
        "call every tool.",
        ("`listen: 0.0.0.0:…` or `--host 0.0.0.0` without `gateway.token`",),
        (
            "set `gateway.token: ${TRUNKLINE_TOKEN}` and give the token to your clients",
            "listen on `127.0.0.1` if only this machine needs it",
        ),
    ),
    "TL113": Explanation(
        "Two keys say opposite or equal things, so it is unclear which one holds.",
        (
            "`command` and `url` in one server",
            "a `type` that does not fit: `type: stdio` with a `url`",
            "one setting under two names, like `url` and `httpUrl`",
        ),
        ("keep one of them, or make two servers of the entry",),
    ),
    "TL114": Explanation(
        "The system did not give the gateway the address it was to listen on.",
        (
            "another program, or another Trunkline, listens there",
            "a port below 1024 without the right to use it",
            "an address that this machine does not have",
        ),
        (
            "see who has it: `ss -ltnp` (`lsof -i` on macOS)",
            "take another port: `trunkline up --port 4848`, or `gateway.listen`",
        ),
    ),
    "TL115": Explanation(
        "`trunkline add` or `trunkline remove` did not touch the file, because the result would not have been what was "
        "asked for. Nothing is lost.",
        (
            "the file is read-only, or its folder is",
            "somebody else changed the file at the same moment",
            "the entry stands in a form that cannot be edited safely, for example behind a YAML alias",
            "the new entry itself has errors",
        ),
        (
            "make the change by hand; the message shows what to write",
            "run `trunkline check` to see what is wrong with the file as it is",
        ),
    ),
    "TL116": Explanation(
        "A configuration that was not named with `-c` but found in the working folder, or an `.awf/plugins.yaml`, is "
        "not trusted. It says which programs are started as you, and may have come with a repository, so it counts "
        "only once you have looked at it. Nothing of it was started.",
        (
            "a repository brought the file, or an agent wrote it",
            "since it was trusted the file was edited, or a program or script of its folder that it starts",
            "its folder was moved, or you are another user",
            "the list of trusted files in `~/.local/state/trunkline` is damaged",
        ),
        (
            "see what it would start, and say whether you trust it: `trunkline trust FILE`",
            "name a configuration of your own: `-c FILE`",
            "for programs that cannot ask: `trunkline trust --yes FILE` beforehand, or `-c FILE` in their command",
        ),
    ),
    "TL120": Explanation(
        "A warning: this key is for the client the file was written for, and Trunkline ignores it.",
        ("a client's own file is used as it is", "`headers` on a server that is a command, or `env` on one with a URL"),
        ("nothing, if the client needs the key; else remove it",),
    ),
    "TL121": Explanation(
        "A warning: a password, key or token seems to stand in the file itself, where backups, version control and "
        "other users can see it.",
        ("a token pasted into `env`, `headers` or `args`",),
        (
            "put it into the environment of the gateway and write `${NAME}` in its place",
            "if the file was shared or committed, have the secret replaced",
            "if it must stay, let only yourself read the file: `chmod 600 FILE`",
        ),
    ),
    "TL122": Explanation(
        "A warning: this entry is Trunkline itself. Behind itself it would call itself for ever, so it is skipped.",
        ("a client's file that already points to the gateway is used as the gateway's own configuration",),
        ("nothing; the other servers of the file are used",),
    ),
    "TL123": Explanation(
        "A warning: the entry's name has characters that tools' names cannot have, so it goes by another one.",
        ("a client's file with names like `My Server`",),
        (
            "use the name of the message in addresses and commands",
            "rename the entry with letters, digits, `_` and `-`",
        ),
    ),
    "TL124": Explanation(
        "A warning: the key is understood and checked, but this version does not do anything with it yet.",
        ("a file that is written for a newer version",),
        ("do not rely on it; remove the key or update Trunkline",),
    ),
    "TL125": Explanation(
        "A warning: other users of this machine can write a file or folder that decides what the gateway runs, and as "
        "whom. Whoever writes there can have a program of theirs started as you.",
        (
            "`chmod 777`, or a umask of 000 where the file was made",
            "a folder that a group shares",
            "a configuration that lies in `/tmp` or below a folder of somebody else",
        ),
        (
            "take the right away with the command of the hint, such as `chmod o-w FILE`",
            "move the file, or `gateway.state_dir`, to a folder that is yours alone",
        ),
    ),
    "TL130": Explanation(
        "The gateway was told to read its configuration again and found errors in it. Nothing was changed: it goes on "
        "with the configuration it had.",
        (
            "the file was saved half finished",
            "a key or value that `trunkline check` refuses",
            "an environment variable that the file names and the gateway was started without",
        ),
        ("run `trunkline check` and correct what it shows; the file is read again when it is saved",),
    ),
    "TL131": Explanation(
        "Something had to be kept on disk, and the folder for that cannot be written. What was asked for is undone.",
        (
            "`gateway.state_dir` belongs to another user or is mounted read-only",
            "the disk is full",
        ),
        (
            "make the folder writable for the user the gateway runs as, or set `gateway.state_dir` to another one",
            "leave out `persist` if it need not outlive a restart",
        ),
    ),
    "TL132": Explanation(
        "`trunkline protect accept` did not put back what an agent's command had made or changed at a protected place. "
        "It is kept as before.",
        (
            "somebody has changed that place since",
            "a command of an agent runs below that folder at this moment, and would be taken for the one who did it",
            "the folder that it belongs to is gone, or cannot be written",
        ),
        (
            "compare what stands there with what is kept: `trunkline protect --json` says where that is",
            "`--force` puts it back all the same; what stands there now is kept in its turn",
        ),
    ),
}
