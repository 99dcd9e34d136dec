"""The command line: words in, one frozen ``Options`` out, and whatever happens, no traceback.

Invariant: importing this module pulls in nothing heavy, so that the program is started at once. If memopt fails
before the program was started, memopt becomes the program; if it fails after, it still waits for it and ends as it
ends.
"""

from __future__ import annotations

import os
import signal
import stat
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import click

from memopt import __version__
from memopt.console import say, say_internal
from memopt.ir.plan import Isa
from memopt.options import PRINTABLE, Options

_USAGE = 2
_FAILED = 1
_OWN_PACKAGES = ("memopt", "passes", "runtime")

_Command = Callable[..., Options]


def _common(command: _Command) -> _Command:
    """The options that ``exec`` and ``attach`` share."""
    options = (
        click.option("--fp", type=click.Choice(["exact", "fast"]), default="exact", show_default=True,
                     help="exact: the same output bit for bit; fast: sums may be reordered and fused."),
        click.option("--dry-run", is_flag=True, help="Do everything but change the program."),
        click.option("--quiet", is_flag=True, help="No report on standard error."),
        click.option("--verbose", is_flag=True, help="Show the time of each stage."),
        click.option("--report", metavar="FILE", help="Write the report to FILE instead of standard error."),
        click.option("--json", metavar="FILE", help="Write the report for machines to FILE."),
        click.option("--print-after", metavar="PASS", multiple=True, type=click.Choice(PRINTABLE),
                     help=f"Print the region after this pass: {', '.join(PRINTABLE)}."),
        click.option("--no-shadow", is_flag=True, help="Install without a trial in a copy of the process."),
        click.option("--isa", type=click.Choice([isa.value for isa in Isa]),
                     help="Instruction set of new code.  [default: the widest this machine has]"),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="%(prog)s %(version)s", prog_name="memopt")
def _memopt() -> None:
    """Make the memory behaviour of a compiled program fit this machine, while it runs."""


@_memopt.command("exec", context_settings={"allow_interspersed_args": False})
@_common
@click.option("--follow", is_flag=True, help="Improve the processes that PROGRAM starts as well (scripts, mpirun).")
@click.argument("arguments", metavar="PROGRAM [ARGUMENTS]...", nargs=-1, required=True, type=click.UNPROCESSED)
def _exec(arguments: tuple[str, ...], **common: Any) -> Options:
    """Run PROGRAM and replace its hot loop nests by faster ones, with the same output."""
    return _options(arguments=arguments, **common)


@_memopt.command("attach")
@_common
@click.option("--undo", is_flag=True, help="Take out what an earlier attach put in.")
@click.argument("pid", type=click.IntRange(min=1))
def _attach(pid: int, undo: bool, **common: Any) -> Options:
    """Do the same to the running process PID and leave it improved."""
    return _options(pid=pid, undo=undo, **common)


def _options(*, isa: str | None, no_shadow: bool, report: str | None, json: str | None, **rest: Any) -> Options:
    return Options(isa=None if isa is None else Isa(isa), shadow=not no_shadow,
                   report=_writable("--report", report), json=_writable("--json", json), **rest)


def _writable(option: str, path: str | None) -> str | None:
    """``path``, checked now and not after an hour's run; a pipe or device is opened now and named by descriptor.

    A name such as /dev/stdout or /dev/fd/63 means what it means now: memopt lets go of what it inherited once the
    program runs.
    """
    if path is None:
        return None
    try:
        special = not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        special = False
    except OSError as error:
        raise click.UsageError(f"{option} {path}: {error.strerror}; name a file that can be written") from error
    if special:
        try:
            return f"/proc/self/fd/{os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)}"
        except OSError as error:
            raise click.UsageError(f"{option} {path}: {error.strerror}; name a file that can be written") from error
    if not os.access(path if os.path.exists(path) else os.path.dirname(path) or ".", os.W_OK):
        raise click.UsageError(f"{option} {path}: cannot be written there; name a file that can")
    return path


def main() -> NoReturn:
    """Entry point of the command ``memopt``."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends memopt without a traceback
    try:
        parsed = _memopt.main(prog_name="memopt", standalone_mode=False)
    except click.ClickException as error:
        say(f"{' '.join(error.format_message().split())}; see memopt --help")
        _leave(_USAGE)
    except click.exceptions.Exit as leaving:
        _leave(leaving.exit_code)
    except (click.Abort, OSError):  # --help into a closed pipe or on a full disk
        _leave(_FAILED)
    if not isinstance(parsed, Options):  # --help and --version have said what they had to say
        _leave(parsed if isinstance(parsed, int) else 0)
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
    from runtime import faults

    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [name for name in names if name.split(".")[0] in _OWN_PACKAGES and name not in (__name__, faults.__name__)]
    return str(own[-1]).rpartition(".")[2] if own else "start"


def _leave(value: int) -> NoReturn:
    from runtime.jobcontrol import leave

    leave(value)
