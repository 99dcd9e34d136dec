"""The driver: the only place, with the command line, where memopt, passes and runtime meet."""

from __future__ import annotations

from memopt.options import Options
from memopt.session.watch import run

__all__ = ["attach", "run"]


def attach(options: Options) -> int:
    """``memopt attach``; see memopt.session.attached."""
    from memopt.session import attached

    return attached.attach(options)
