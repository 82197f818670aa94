"""Words that say nothing of what a tool does."""

from __future__ import annotations

from typing import Final

_FUNCTION: Final = """
a an and are as at be by for from has have in is it its of on or that the their this to was were which with
"""
_REQUEST: Final = """
about after again all also am any anyone anything because been before being both but can cannot could did do does doing
done during each either else etc even ever few further get gets getting give given gives go going good got had hello
help her here hers hey hi him his how however i if im into just kindly know let lets like ll looking make many may maybe
me might mine more most much must my myself need needed needs no nor not now ok okay once one only other our ours own
per please possible re really same say see several shall she should show since so some someone something such suggest
sure tell than thank thanks them then there these they thing things those through too try trying until upon us use used
using ve very via want wanted wants way we well what when where whether while who whom whose why will wish within
without would yes yet you your yours
"""
FUNCTION_WORDS: Final = frozenset(_FUNCTION.split())
"""Left out of running text on both sides: they are in nearly all of it."""
REQUEST_WORDS: Final = FUNCTION_WORDS | frozenset(_REQUEST.split())
"""What people write around that which they look for."""
