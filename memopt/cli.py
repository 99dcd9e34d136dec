"""The front door: words in, one frozen ``Options`` out, and whatever happens, no traceback.

Invariant: importing this module pulls in nothing heavy, so that the program is started at once. If memopt fails
before the program was started, memopt becomes the program; if it fails after, it still waits for it and ends as it
ends.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from memopt.arguments import plain
from memopt.console import say, say_internal
from memopt.options import Options

_FAILED = 1
_OWN_PACKAGES = ("memopt", "passes", "runtime")


def main() -> NoReturn:
    """Entry point of the command ``memopt``."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends memopt without a traceback
    words = sys.argv[1:]
    parsed: Options | int | None = plain(words)
    if parsed is None:
        from memopt.usage import parse

        parsed = parse(words)
    if isinstance(parsed, int):
        _leave(parsed)
    _leave(_run(parsed))


def _run(options: Options) -> int:
    """Exit code, or minus the signal to die by."""
    from runtime.identify import CannotRun

    try:
        from memopt.session import attach, run

        return run(options) if options.pid is None else attach(options)
    except CannotRun as error:
        say(str(error))
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the last resort: nothing may come out as a traceback
        say_internal(_stage(error), error)
        return _FAILED if options.pid is not None else _go_on_natively(options)


def _go_on_natively(options: Options) -> int:
    from runtime.identify import CannotRun, identify
    from runtime.jobcontrol import wait_to_end
    from runtime.launch import replace, supervised

    supervisor = supervised()
    if supervisor is not None:
        return wait_to_end(supervisor)
    try:
        replace(identify(options.arguments[0], os.environ.get("PATH")), options.arguments)
    except CannotRun as error:
        say(str(error))
        return error.exit_code


def _stage(error: BaseException) -> str:
    """The innermost module of memopt's own that the error came through, without its package."""
    import traceback

    from runtime import faults

    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [name for name in names if name.split(".")[0] in _OWN_PACKAGES and name not in (__name__, faults.__name__)]
    return str(own[-1]).rpartition(".")[2] if own else "start"


def _leave(value: int) -> NoReturn:
    from runtime.jobcontrol import leave

    leave(value)
