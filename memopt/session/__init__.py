"""The driver: the only place, with the command line, where memopt, passes and runtime meet."""

from memopt.session.watch import run

__all__ = ["run"]
