"""Short forms that are usual in the names of tools and parameters, and the words that requests have for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_SHORT_FORMS: Final = """
account acct
address addr
amount amt
application app apps
argument arg args
attribute attr attrs
authentication auth
average avg
command cmd
configuration cfg config configs
database db dbs
destination dest
directory dir dirs
document doc docs
environment env envs
execute exec
image img imgs
information info
language lang langs
latitude lat
location loc
longitude lng lon
management mgmt
message msg msgs
number num
organization org orgs
package pkg pkgs
parameter param params
picture pic pics
project proj
quantity qty
reference ref refs
repository repo repos
source src
statistic stats
transaction txn
"""


def _by_short_form(lines: Sequence[str]) -> dict[str, str]:
    return {short: words[0] for words in [line.split() for line in lines] for short in words[1:]}


SPELLED_OUT: Final[dict[str, str]] = _by_short_form(_SHORT_FORMS.strip().splitlines())
