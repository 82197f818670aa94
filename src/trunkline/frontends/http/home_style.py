"""How the page at `/` looks: light and dark, on a telephone too, without a line of script."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root {
  --ink: #1c2127; --quiet: #5b6672; --page: #f6f7f9; --card: #fff; --line: #dfe3e8; --link: #0b5cad;
  --ready: #12693a; --degraded: #8a5300; --starting: #1d5a9e; --down: #b3261e; --disabled: #5b6672;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6e9ed; --quiet: #9aa5b1; --page: #14171b; --card: #1d2126; --line: #313840; --link: #7db7f2;
    --ready: #6fd39b; --degraded: #f0b95c; --starting: #83bdf5; --down: #ff8f85; --disabled: #9aa5b1;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 52rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
}
h1, h2, h3, p, dl, dd, pre { margin: 0; }
h1 { font-size: 1.75rem; }
h1 small { color: var(--quiet); font-size: 1rem; font-weight: 400; }
h2 { margin: 2rem 0 .75rem; font-size: 1.1rem; }
h3 { font-size: 1rem; }
a { color: var(--link); }
header p, .quiet, time { color: var(--quiet); }
time { font-size: .85rem; font-weight: 400; }
code, pre { font-family: ui-monospace, monospace; font-size: .9rem; }
pre { margin: .5rem 0; padding: .75rem; white-space: pre-wrap; }
pre, article { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
article { margin: 0 0 .5rem; padding: .6rem .9rem; }
.pill {
  display: inline-block; padding: 0 .55rem; border: 1px solid; border-radius: 1rem; font-size: .8rem; font-weight: 600;
  white-space: nowrap; vertical-align: middle;
}
.ready { color: var(--ready); }
.degraded, .auth_required { color: var(--degraded); }
.starting { color: var(--starting); }
.down { color: var(--down); }
.disabled { color: var(--disabled); }
.hint::before { content: "hint: "; color: var(--quiet); }
.notice { margin-top: .75rem; color: var(--down); font-weight: 600; }
summary { width: fit-content; cursor: pointer; color: var(--link); font-size: .9rem; }
dl { padding: .5rem 0 0 1rem; }
dd { padding: 0 0 .5rem; color: var(--quiet); font-size: .9rem; }
footer { margin-top: 2rem; padding-top: 1rem; border-top: 1px solid var(--line); }
footer a { margin-right: 1rem; }
"""
