"""The command line in full: every option with its help, and errors in one line.

Invariant: nothing is started here. ``memopt.arguments`` reads most command lines without this module, which is slow
to import.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from memopt import __version__
from memopt.arguments import profile_path
from memopt.console import say
from memopt.ir.isa import Isa
from memopt.options import PRINTABLE, Options

_USAGE = 2
_FAILED = 1

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


@_memopt.command("profile", context_settings={"allow_interspersed_args": False})
@click.option("-o", "--output", metavar="FILE", help="The profile.  [default: the program's name with .db]")
@click.option("--exact", is_flag=True, help="Count everything that is executed, instead of sampling.")
@click.option("--no-elision", is_flag=True, help="With --exact: count even what follows from a loop's registers.")
@click.option("--memory", is_flag=True,
              help="Watch memory, too: dependences, patterns, working sets. Hundreds of times slower.")
@click.option("--dependences", is_flag=True,
              help="Watch memory for dependences alone: in less than half the time.")
@click.option("--reuse", is_flag=True, help="Watch memory, and how many lines are touched between touches of a line.")
@click.option("--values", is_flag=True,
              help="Count everything, and tell arguments, invariants, trip counts and cycles of functions and loops.")
@click.option("--affine", is_flag=True,
              help="Lift hot nests besides: their statements, and what they touch, without a trace.")
@click.option("--paths", is_flag=True,
              help="Count acyclic paths of functions: with --exact all of the time, else now and then.")
@click.option("--unhook", type=click.IntRange(1), default=5000, show_default=True, metavar="PATHS",
              help="With --paths: how many are counted at a time.")
@click.option("--rehook", type=click.IntRange(1), metavar="CYCLES",
              help="With --paths: from one time to the next.  [default: as --overhead says]")
@click.option("--overhead", type=click.FloatRange(0.1, 100), default=5.0, show_default=True, metavar="PERCENT",
              help="With --paths: part of the time in which paths are counted.")
@click.option("--trace", metavar="FILE", help="Write all accesses to memory to FILE, for memopt trace.")
@click.option("--quiet", is_flag=True, help="Nothing on standard error.")
@click.argument("arguments", metavar="PROGRAM [ARGUMENTS]...", nargs=-1, required=True, type=click.UNPROCESSED)
def _profile(arguments: tuple[str, ...], output: str | None, exact: bool, no_elision: bool, memory: bool,
             dependences: bool, reuse: bool, values: bool, affine: bool, paths: bool, unhook: int, rehook: int | None,
             overhead: float, trace: str | None, quiet: bool) -> Options:
    """Run PROGRAM and write to a file where its time goes, or what it executes, for memopt query."""
    from memopt.store.schema import StoreError, check_new

    if dependences and (memory or reuse):
        raise click.UsageError("--dependences watches for these alone; --memory finds them, too")
    memory |= reuse or dependences
    if paths and (affine or memory or values or trace is not None):
        raise click.UsageError("--paths counts paths alone; ask for the rest in another run")
    if values and (memory or trace is not None):
        raise click.UsageError("--values tells no accesses to memory; ask for these in another run")
    if affine and (exact or memory or values or trace is not None):
        raise click.UsageError("--affine looks at a program that runs as it is; ask for what is counted in another run")
    try:
        path = profile_path(output, arguments[0])
        check_new(path)
    except StoreError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:  # of the folder one is in
        raise click.UsageError(f"this folder is gone ({error.strerror}); name a file in another one with -o") from error
    return Options(arguments=arguments, profile=path,
                   exact=exact or memory or values or trace is not None, elide=not no_elision, memory=memory,
                   dependences=dependences, reuse=reuse, affine=affine, trace=_writable("--trace", trace), quiet=quiet,
                   paths=paths, unhook=unhook, rehook=rehook, overhead=overhead, values=values)


@_memopt.command("query")
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True,
              help="How the answer is written.")
@click.option("--list", "names", is_flag=True, help="Show the queries that have a name.")
@click.option("--schema", is_flag=True, help="Show the tables of a profile.")
@click.argument("file", required=False)
@click.argument("question", metavar="[SQL|NAME]", required=False)
def _query(file: str | None, question: str | None, form: str, names: bool, schema: bool) -> int:
    """Ask the profile FILE, in SQL or by the name of a query."""
    from memopt.store import ask
    from memopt.store.schema import TABLES, StoreError

    if names or schema:
        click.echo("\n".join(ask.names()) if names else TABLES.strip())
        return 0
    if file is None or question is None:
        raise click.UsageError("a file and a query are needed, as in: memopt query FILE hot-loops")
    try:
        for line in ask.answer(file, question, form):
            click.echo(line)
    except StoreError as error:
        say(str(error))
        return _FAILED
    return 0


@_memopt.command("merge")
@click.option("-o", "--output", metavar="FILE", required=True, help="The profile of all.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def _merge(output: str, files: tuple[str, ...]) -> int:
    """Make one profile of several, as of the ranks of a run under mpirun."""
    from memopt.store.merge import merge
    from memopt.store.schema import StoreError

    if os.path.realpath(output) in map(os.path.realpath, files):
        raise click.UsageError(f"{output}: is to be read, too; name another file for the profile of all")
    try:
        merge(output, files)
    except StoreError as error:
        say(str(error))
        return _FAILED
    return 0


@_memopt.command("trace")
@click.argument("file")
def _trace(file: str) -> int:
    """Write the trace FILE to standard output as text.

    R8@4005e1 7f12a0c8: the instruction at 4005e1 reads 8 bytes from 7f12a0c8 on.
    """
    from memopt.traces.core.file import TraceError, text

    try:
        with open(file, "rb") as opened:
            for lines in text(opened):
                sys.stdout.buffer.write(lines)
    except (OSError, TraceError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        say(f"{file}: {why}")
        return _FAILED
    return 0


@_memopt.command("report")
@click.option("--least", type=click.FloatRange(0, 100), default=1.0, show_default=True, metavar="PERCENT",
              help="Leave out what has a smaller share.")
@click.option("--html", metavar="FILE", help="Write a page to look into instead, which needs no network.")
@click.option("--speedscope", metavar="FILE", help="Write it for speedscope instead.")
@click.option("--callgrind", metavar="FILE", help="Write it for kcachegrind and callgrind_annotate instead.")
@click.argument("file")
def _report(file: str, least: float, html: str | None, speedscope: str | None, callgrind: str | None) -> int:
    """Show the profile FILE: functions and loops, by what calls and holds them."""
    from memopt.report import details, exports, memory, page, patterns, profile
    from memopt.store.schema import StoreError, open_existing
    from memopt.store.tree import read_tree

    try:
        connection = open_existing(file)
        root, unit = read_tree(connection)
        if html is speedscope is callgrind is None:
            for line in (*profile.lines(root, unit, least), *memory.lines(connection, least),
                         *patterns.lines(connection, least)):
                click.echo(line)
        if html is not None:
            _write("--html", html, page.page(root, unit, details.details(connection)))
        if speedscope is not None:
            _write("--speedscope", speedscope, exports.speedscope(root, unit))
        if callgrind is not None:
            _write("--callgrind", callgrind, "\n".join(exports.callgrind(connection)))
        connection.close()
    except StoreError as error:
        say(str(error))
        return _FAILED
    return 0


def _write(option: str, path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.UsageError(f"{option} {path}: {error.strerror}; name a file that can be written") from error


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


def parse(words: Sequence[str]) -> Options | int:
    """What ``words`` after the command's name ask for; the exit code when that has been done already, or is wrong."""
    try:
        parsed = _memopt.main(list(words), prog_name="memopt", standalone_mode=False)
    except click.ClickException as error:
        say(f"{' '.join(error.format_message().split())}; see memopt --help")
        return _USAGE
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except (click.Abort, OSError):  # --help into a closed pipe or on a full disk
        return _FAILED
    # --help and --version have said what they had to say
    return parsed if isinstance(parsed, Options | int) else 0
