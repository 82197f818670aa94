"""The codes 6xx, and those of workflow files: what went wrong with an agent that was started."""

from __future__ import annotations

from typing import Final

from trunkline.core.explanations.explanation import Explanation

_FILE: Final = {
    "TL601": Explanation(
        "The workflow file has a type of state, a provider or a field that this version does not run. Nothing was "
        "started: a step that is left out silently would be worse.",
        ("the file uses more of AWF than Trunkline runs", "a field is misspelled", "a field stands one level too deep"),
        ("remove what is named, or run this file with AWF", "docs/workflows.md lists what is supported"),
    ),
    "TL602": Explanation(
        "A state leads to a state that the file does not have, or `states.initial` names none.",
        ("a state was renamed and its name was left where others lead to it", "a typing mistake"),
        ("correct the name, or add the state",),
    ),
    "TL603": Explanation(
        "The workflow wants inputs that were not given, or was given one that it does not know or that is of another "
        "type.",
        ("a required input has no `--input name=value`", "a name is misspelled", "text was given for a number"),
        ("give each input as `--input name=value`; the message says which are known",),
    ),
    "TL604": Explanation(
        "A text in the workflow refers to an input or a state that is not there, in a form that is not known, or to a "
        "state that can never have run before.",
        ("a misspelled name in `{{.inputs.NAME}}` or `{{.states.NAME.Output}}`", "another template function of AWF"),
        ("write `{{.inputs.NAME}}` or `{{.states.NAME.Output}}`, with a name from the file",),
    ),
    "TL605": Explanation(
        "`validate` starts a plugin to learn which operations it has, and this one did not start, so `expose` could "
        "not be checked.",
        ("the program is missing, or may not be run", "it ended, or did not answer in time", "grpcio is not installed"),
        ("start it by itself and look at what it prints", "`pip install 'trunkline[plugins]'` where grpcio is missing"),
    ),
    "TL606": Explanation(
        "A value becomes code in a shell command: the output of a step as `.raw`, any value in an argument that is run "
        "as code, as those of `eval` and `sh -c` are, or in a variable that bash calculates with. Whoever can "
        "influence that value, as anyone can whose text a model reads, can have other commands run.",
        (
            "`{{.raw.states.NAME.Output}}` in a `command`",
            "a reference after `eval`, `sh -c`, `ssh`, `python -c`",
            "`n={{.inputs.n}}` or `env: {n: …}` with `$((n + 1))` or `[[ $n -gt 1 ]]` in the command",
        ),
        (
            "leave `.raw` out where text is meant",
            "set a variable to the value with `env`, and use that in the code",
            "declare what is calculated with as an `integer`, or use `expr` and `[ … ]`",
        ),
    ),
    "TL607": Explanation(
        "Values are quoted for the place in a command where they stand. In this one no quotes keep them from being "
        "code, shells differ about it, or what stands before it is more than can be followed.",
        (
            "a reference in backticks, in `${…}`, in `$((…))`, or directly after `$` or a backslash",
            "one that comes after a `${…}` with quotes in it, or after a `case` in `$(…)`",
        ),
        (
            'set a variable to the value with `env`, and use `"$NAME"` in the command',
            "write `$(…)` for backticks",
            "in arithmetic, declare the input as an `integer`: a variable is no help there",
            "write `{{.raw.inputs.NAME}}` where the value is meant to be code",
        ),
    ),
    "TL608": Explanation(
        "The workflow has a key that only says something to people, such as `author` or `tags`, or to workflows that "
        "call it (`outputs`). It changes nothing.",
        ("the file was written for AWF, or for people who read it",),
        ("nothing; remove the key to get rid of the warning",),
    ),
    "TL609": Explanation(
        "`mcp_proxy.sources` names a source that is declared and cannot be started as things stand, so the step would "
        "end before its agent is started.",
        ("an environment variable that its section refers to is not set", "it is switched off (`enabled: false`)"),
        ("provide what the message names, or leave the source out of the step",),
    ),
}

_AGENTS: Final = {
    "TL610": Explanation(
        "The program of the agent was not found, or does not say its version.",
        ("it is not installed, or not in PATH", "the installation is broken"),
        ("install it, and check that its command works in the same terminal",),
    ),
    "TL611": Explanation(
        "The agent ended with an error, or ended without an answer.",
        ("it is not logged in, or its key is not valid", "its model refused the request", "it was killed"),
        ("read what it wrote, which is part of the message", "run the agent by itself with the same prompt"),
    ),
    "TL612": Explanation(
        "The agent never asked for the tools it was given, so whatever it said, it said without them. The step counts "
        "as failed, even where the agent reports success.",
        ("a version of the agent that treats its configuration differently", "the agent gave up before its first turn"),
        ("use a version that docs/agents says is verified", "see what the agent wrote about its MCP servers"),
    ),
    "TL613": Explanation(
        "The agent was to have no tools but those of Trunkline, and was offered or used another one. It was stopped.",
        ("a version of the agent with a new tool that its options do not switch off",),
        (
            "use a version that docs/agents says is verified",
            "use `intercept_builtins: false` if its own tools may stay",
        ),
    ),
    "TL614": Explanation(
        "The step took longer than its `timeout` and was ended, with everything that it had started.",
        ("the agent or its model hangs", "the work needs more time"),
        ("raise the `timeout` of the step",),
    ),
    "TL615": Explanation(
        "The run was interrupted by a signal, like that of Ctrl+C, and everything that it had started was ended. What "
        "the agent said about its own end does not count: some report success after an interrupt.",
        ("somebody pressed Ctrl+C", "the terminal was closed", "a service manager stopped it"),
        ("start it again when you want it",),
    ),
    "TL616": Explanation(
        "The command of a step ended with a status other than 0, or could not be started.",
        ("the command itself failed", "the folder in `dir` does not exist"),
        ("read its output, which is part of the message", "add `on_failure` where a failure is expected"),
    ),
    "TL617": Explanation(
        "States lead to each other in a circle, and the run was ended after very many steps.",
        ("no state of the circle ever leads to a terminal one",),
        ("check `on_success` and `on_failure` of the states that are named",),
    ),
    "TL618": Explanation(
        "This version of the agent is not one for which it was proven that none of its own tools is left. It was tried "
        "out before the step, and the message says what came of that.",
        ("the agent was updated", "an old version is installed"),
        ("use a version that docs/agents says is verified", "use claude or openai_compatible where it must be certain"),
    ),
    "TL619": Explanation(
        "The program of the agent is there, but did not say its version (or Codex, its models) in time, so it was not "
        "started. What it once said is remembered until its program changes, except for launchers of version managers.",
        ("the machine is busy", "its folder is on a slow disk or network", "its launcher waits for something"),
        ("run its command with `--version` in a terminal and see what it does", "try again when the machine is idle"),
    ),
    "TL620": Explanation(
        "The server of the model cannot be reached, or refuses the request, also after the retries that make sense.",
        (
            "`base_url` is wrong, or nothing listens there",
            "the key is not valid",
            "the model's name is not known there",
        ),
        ("check `base_url`, key and `model` in `options`", "the message holds what the server said"),
    ),
    "TL621": Explanation(
        "The model's server began an answer that broke off, or that is not what chat completions look like.",
        ("a proxy or a network that cuts long answers", "a server that speaks another protocol"),
        ("try again", "check that `base_url` is that of a chat completions API, most often it ends with `/v1`"),
    ),
    "TL622": Explanation(
        "The model's server said that the model wants to call tools, and named none. Asking again would never end.",
        ("a server whose tool parser does not fit the model",),
        ("start the server with the tool parser of this model", "use another model"),
    ),
    "TL623": Explanation(
        "The model asked for tools again and again, more often than a step may.",
        ("the model goes in a circle", "the work needs more turns"),
        ("raise `options.max_turns`", "give the model a smaller task"),
    ),
    "TL624": Explanation(
        "The step names an environment variable for the key of the model's server, and it is not set.",
        ("the variable is not exported in this terminal", "its name is misspelled"),
        ("export the variable, or leave out `api_key` where the server wants none",),
    ),
    "TL625": Explanation(
        "The model, or the agent, ended without an answer: there is none, or there are only thoughts. What it did with "
        "its tools is done, but it did not say how that went.",
        (
            "a small model that loses its thread after a tool call",
            "a server that takes the answer for thoughts, since its reasoning parser does not fit the model",
            "a prompt that asks for silence",
        ),
        ("ask in the prompt for a final answer, if only `done`", "raise `options.max_tokens`", "use another model"),
    ),
    "TL626": Explanation(
        "The model's answer ends with a call to one of its tools that is written as text, such as "
        "`<tool_call>…</tool_call>`. The server did not turn it into a call, so nothing was run.",
        ("the server runs without the tool parser for this model", "the model was not trained to call tools"),
        (
            "start the server with the tool parser for this model (vLLM: `--tool-call-parser`, llama.cpp: `--jinja`)",
            "use another model",
            "if it is meant as an answer, ask in the prompt for calls to be quoted in a block of code",
        ),
    ),
    "TL627": Explanation(
        "`OPENAI_API_KEY` is set, but the step's server is not OpenAI's, so the key is not sent to it. It is sent to "
        "OpenAI's own hosts, and to the server in `OPENAI_BASE_URL` where the step names none.",
        ("`base_url` names another server, whose key is in the same variable", "`OPENAI_BASE_URL` is plain HTTP"),
        (
            "name the key of this server in the step: `api_key_env: NAME`, or `api_key: ${NAME}`",
            "if the server wants no key, nothing is wrong; `unset OPENAI_API_KEY` silences the warning",
        ),
    ),
    "TL628": Explanation(
        "An isolated agent is given the project's instructions (`AGENTS.md`, `CLAUDE.md` or `GEMINI.md`) as text that "
        "Trunkline reads. This file was not given, or only its beginning was.",
        (
            "it is a link that leads out of the project's folder",
            "it is not a regular file, or not UTF-8 text",
            "it is larger than 64 KiB",
        ),
        (
            "replace the link by a copy of what it should say",
            "turn instructions off: `instructions: false` in the step's `options`, or `--no-instructions` of "
            "`trunkline agent`",
        ),
    ),
    "TL629": Explanation(
        "The program by which the agent reaches its tools (`mcp-serve`) was gone while a call was under way. The call "
        "was cancelled. An agent that then went on without its tools counts as failed, whatever it said; where it got "
        "them back, this is a warning.",
        ("somebody or something killed the program", "the machine ran out of memory"),
        ("look into the system's log", "run the step again, once you know how far the cancelled call came"),
    ),
    "TL630": Explanation(
        "The server refused the request because of this option of the step. The request was sent again without it, and "
        "the option is left out for the rest of the run.",
        ("the model reasons, and takes no `temperature` but its own",),
        ("remove the option from the step",),
    ),
}

_PROXY: Final = {
    "USER.MCP_PROXY.UNKNOWN_KEY": Explanation(
        "The `mcp_proxy` block has a key that it does not know. It knows `enable`, `intercept_builtins`, "
        "`sources`, and `plugin_tools` with `plugin` and `expose`.",
        ("a misspelled key", "a key of a later version of the format"),
        ("correct or remove the key",),
    ),
    "USER.MCP_PROXY.UNKNOWN_PLUGIN": Explanation(
        "`plugin_tools` names a plugin that is declared neither in `.awf/plugins.yaml` nor under `sources`.",
        ("a misspelled name", "the workflow is run from another folder than that of its `.awf`"),
        ("declare the plugin, or correct the name",),
    ),
    "USER.MCP_PROXY.UNKNOWN_SOURCE": Explanation(
        "`mcp_proxy.sources` names a source that the configuration does not declare, or one of the kind `builtin`, "
        "which a step gets by `intercept_builtins`.",
        ("a misspelled name", "the workflow is run with another configuration, or from a folder where none is found"),
        ("declare the source, or correct the name", "`trunkline check` says which configuration counts"),
    ),
    "USER.MCP_PROXY.UNKNOWN_OPERATION": Explanation(
        "`expose` names an operation that the plugin does not have.",
        ("a misspelled name", "another version of the plugin"),
        ("the message lists the operations that the plugin has",),
    ),
    "USER.MCP_PROXY.NAME_COLLISION": Explanation(
        "Two tools of one step would have the same name, so a call could mean either.",
        ("one operation is exposed twice", "the names of a plugin and its operation make the name of another tool"),
        ("expose it once, or rename the plugin",),
    ),
    "USER.MCP_PROXY.EMPTY_PROXY": Explanation(
        "The proxy is enabled and has nothing to offer: the agent keeps its own tools, and none are added.",
        ("`intercept_builtins: false` without `sources` and `plugin_tools`",),
        ("add `sources` or `plugin_tools`, leave out `intercept_builtins: false`, or remove the block",),
    ),
    "USER.MCP_PROXY.UNSUPPORTED_PROVIDER": Explanation(
        "The agent may keep tools of its own beside ours: Trunkline switches them off, but that was not verified for "
        "the installed version, or it is not known which version is installed.",
        ("the step uses a version of codex or opencode that is not verified",),
        ("install a verified version", "use claude or openai_compatible where it must be certain"),
    ),
}

AGENTS: Final = _FILE | _AGENTS | _PROXY
