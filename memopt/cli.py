"""The entry point of the command ``memopt``: reads the command line, runs the driver, ends as the program ended.

In: ``sys.argv``. Out: an exit code, or the signal that ended the program. No exception comes out as a traceback:

- If memopt fails before the program was started, memopt becomes the program (execve).
- If it fails after that, it waits for the program, which runs on natively, and ends as the program ends.

Invariant: importing this module imports nothing heavy, so that the program is started at once.
"""

from __future__ import annotations

import os
import signal
import sys

from memopt.arguments import plain

TYPE_CHECKING = False  # in place of typing.TYPE_CHECKING: importing typing takes five milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from memopt.options import Options

_FAILED = 1
_OWN_PACKAGES = ("memopt", "passes", "runtime")


def main() -> NoReturn:
    """The command ``memopt``. Does not return: it exits with the program's exit code, or dies by its signal."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends memopt without a traceback
    words = sys.argv[1:]
    found = plain(words)
    from runtime.launch.limits import lift

    limited = lift()
    if limited and (found is not None or (words[:1] in (["exec"], ["profile"], ["snapshot"]) and "--" in words)):
        _say(limited)
        _leave(_go_on_natively(words[words.index("--") + 1:] if found is None else found[0]))
    if found is not None:
        arguments, chosen = found
        _leave(_guarded(lambda: _execute(arguments, chosen), arguments))
    from memopt.usage import parse

    options = parse(words)
    if isinstance(options, int):
        _leave(options)
    _leave(_guarded(lambda: _run(options), None if options.pid is not None else options.arguments))


def _execute(arguments: tuple[str, ...], chosen: dict[str, bool | str]) -> int:
    from memopt.session import driver

    started = driver.start(arguments) if "profile" not in chosen else None  # before the rest is imported

    from memopt.options import Options

    return driver.run(Options(arguments=arguments, **chosen), started)  # type: ignore[arg-type]  # fields of Options


def _run(options: Options) -> int:
    from memopt.session import driver

    return driver.run(options) if options.pid is None else driver.attach(options)


def _guarded(run: Callable[[], int], arguments: Sequence[str] | None) -> int:
    """Calls ``run`` and returns its result: an exit code, or a signal to die by, negated.

    If ``run`` raises, the program ``arguments`` runs natively. ``arguments`` is None for ``memopt attach``: the process
    runs on by itself, and memopt exits with 1.
    """
    from runtime.launch.identify import CannotRun

    try:
        return run()
    except CannotRun as error:
        _say(str(error))
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the last resort: the user must not see a traceback
        from memopt.console import say_internal

        say_internal(_stage(error), error)
        return _FAILED if arguments is None else _go_on_natively(arguments)


def _say(text: str) -> None:
    from memopt.console import say

    say(text)


def _go_on_natively(arguments: Sequence[str]) -> int:
    """Waits for the program if it was started; else replaces this process by it. Returns the value to leave with."""
    from runtime.launch.identify import CannotRun, identify
    from runtime.launch.jobcontrol import wait_to_end
    from runtime.launch.launch import replace, supervised

    supervisor = supervised()
    if supervisor is not None:
        return wait_to_end(supervisor)
    try:
        replace(identify(arguments[0], os.environ.get("PATH")), arguments)
    except CannotRun as error:
        _say(str(error))
        return error.exit_code


def _stage(error: BaseException) -> str:
    """The name, without its package, of the innermost module of memopt in the traceback of ``error``."""
    import traceback

    from runtime import faults

    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [name for name in names if name.split(".")[0] in _OWN_PACKAGES and name not in (__name__, faults.__name__)]
    return str(own[-1]).rpartition(".")[2] if own else "start"


def _leave(value: int) -> NoReturn:
    from runtime.launch.jobcontrol import leave

    leave(value)
