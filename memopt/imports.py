"""Imports of outside packages without those of their parts that memopt never uses.

Example: islpy asks ``importlib.metadata`` for its own version, which imports the parsers of mail and URLs: 5 % of the
time of all imports. ``with stand_in("islpy.version", VERSION=(), VERSION_TEXT=""): import islpy`` spares that.

In: names of modules. Out: contexts, in which packages are imported. Only the module that imports a package may know
what it can do without; a test of that module holds that the package works all the same.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType


@contextmanager
def stand_in(name: str, **members: object) -> Iterator[None]:
    """A context in which the module ``name`` is one that has only ``members``. Where the package asks for more, it gets
    an ``ImportError`` or ``AttributeError``. A module that was imported before stays as it is."""
    made = ModuleType(name)
    vars(made).update(members)
    known = sys.modules.setdefault(name, made)
    try:
        yield
    finally:
        if known is made:
            del sys.modules[name]


def deferred(name: str) -> AbstractContextManager[None]:
    """A context in which ``import name`` gives a module that loads the real one when something of it is used."""
    return stand_in(name, __getattr__=lambda member: getattr(importlib.import_module(name), member))
