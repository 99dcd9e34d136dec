"""The full command-line parser of ``memopt``, with click: all options with their help texts, errors in one line.

In: the words behind the command's name. Out: ``Options`` for the driver, or an exit code. The commands ``query``,
``merge``, ``trace``, ``report``, ``rewrite`` and ``inspect``, ``--help`` and ``--version`` are carried out here; no
program is started here.

``memopt.arguments`` reads the common command lines without this module, which is slow to import.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

import click

from memopt import __version__
from memopt.arguments import profile_path
from memopt.console import say
from memopt.ir.isa import Isa
from memopt.options import PRINTABLE, Keeping, Options, ProfileMode

_USAGE = 2
_FAILED = 1

_Command = Callable[..., Options]


def _common(command: _Command) -> _Command:
    """The options that ``exec`` and ``attach`` share."""
    options = (
        click.option("--fp", type=click.Choice(["exact", "fast"]), default="exact", show_default=True,
                     help="exact: the same output, bit for bit. fast: sums may be reassociated, multiply-adds fused."),
        click.option("--dry-run", is_flag=True, help="Do everything except changing the program."),
        click.option("--quiet", is_flag=True, help="Write no report to standard error."),
        click.option("--verbose", is_flag=True, help="Show the time of each stage."),
        click.option("--report", metavar="FILE", help="Write the report to FILE instead of standard error."),
        click.option("--json", metavar="FILE", help="Write the report to FILE as JSON."),
        click.option("--print-after", metavar="PASS", multiple=True, type=click.Choice(PRINTABLE),
                     help=f"Print the loop nest after this pass: {', '.join(PRINTABLE)}."),
        click.option("--no-shadow", is_flag=True, help="Install new code without trying it in a copy of the process."),
        click.option("--no-cache", is_flag=True,
                     help="Neither use the plans of earlier runs nor keep those of this one (memopt cache)."),
        click.option("--isa", type=click.Choice([isa.value for isa in Isa]),
                     help="Instruction set of the new code.  [default: the widest that this machine has]"),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _explain(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked:
        from memopt.promise import explanation

        click.echo(explanation())
        context.exit()


_TRAIN = """Trainings stand at the end: [--train -- ARGUMENTS]... are arguments of the program FILE, and whole command
lines where FILE is a library. Without any, the program is run once without arguments."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="%(prog)s %(version)s", prog_name="memopt")
def _memopt() -> None:
    """Make the memory behaviour of a compiled program fit this machine while the program runs."""


@_memopt.command("exec", context_settings={"allow_interspersed_args": False})
@_common
@click.option("--explain-promise", is_flag=True, is_eager=True, expose_value=False, callback=_explain,
              help="Say what memopt promises, and which programs may notice it all the same.")
@click.option("--follow", is_flag=True, help="Also improve the processes that PROGRAM starts (scripts, mpirun).")
@click.option("--on-mismatch", metavar="FILE",
              help="Write a snapshot of the nest to FILE if a trial of new code finds other results.")
@click.argument("arguments", metavar="PROGRAM [ARGUMENTS]...", nargs=-1, required=True, type=click.UNPROCESSED)
def _exec(arguments: tuple[str, ...], on_mismatch: str | None, **common: Any) -> Options:
    """Run PROGRAM and speed up its hot loop nests.

    memopt replaces them by faster code while the program runs. The output stays the same.
    """
    if on_mismatch is not None and common["no_shadow"]:
        raise click.UsageError("--on-mismatch needs the trials that --no-shadow leaves out")
    asked = None if on_mismatch is None else Keeping(_snapshot_path("--on-mismatch", on_mismatch), mismatch=True)
    return _options(arguments=arguments, snapshot=asked, **common)


@_memopt.command("attach")
@_common
@click.option("--undo", is_flag=True, help="Remove the code that an earlier attach installed.")
@click.argument("pid", type=click.IntRange(min=1))
def _attach(pid: int, undo: bool, **common: Any) -> Options:
    """Speed up the running process PID.

    memopt replaces its hot loop nests by faster code, and leaves that code in the process.
    """
    return _options(pid=pid, undo=undo, **common)


@_memopt.command("profile", context_settings={"allow_interspersed_args": False})
@click.option("-o", "--output", metavar="FILE",
              help="Write the profile to FILE.  [default: the program's name with .db]")
@click.option("--exact", is_flag=True, help="Count all instructions, iterations and calls instead of sampling.")
@click.option("--no-elision", is_flag=True,
              help="With --exact: count also iterations that a loop's registers tell without a counter.")
@click.option("--memory", is_flag=True,
              help="Count, and find dependences, access patterns and working sets. Hundreds of times slower.")
@click.option("--dependences", is_flag=True,
              help="Count, and find dependences only, in less than half the time of --memory.")
@click.option("--reuse", is_flag=True,
              help="As --memory, and find reuse distances: cache lines touched between two touches of a line.")
@click.option("--values", is_flag=True,
              help="Count, and record arguments, loop invariants, trip counts and cycles of functions and loops.")
@click.option("--affine", is_flag=True,
              help="Sample, and derive working sets of hot loop nests from their machine code, without a trace.")
@click.option("--paths", is_flag=True,
              help="Count acyclic paths of functions: in short windows, or all of them with --exact.")
@click.option("--unhook", type=click.IntRange(1), default=5000, show_default=True, metavar="PATHS",
              help="With --paths: paths counted in one window.")
@click.option("--rehook", type=click.IntRange(1), metavar="CYCLES",
              help="With --paths: cycles from one window to the next.  [default: as --overhead allows]")
@click.option("--overhead", type=click.FloatRange(0.1, 100), default=5.0, show_default=True, metavar="PERCENT",
              help="With --paths: the share of the time that windows may take.")
@click.option("--trace", metavar="FILE", help="Write all memory accesses to FILE; memopt trace FILE prints them.")
@click.option("--quiet", is_flag=True, help="Write nothing to standard error.")
@click.argument("arguments", metavar="PROGRAM [ARGUMENTS]...", nargs=-1, required=True, type=click.UNPROCESSED)
def _profile(arguments: tuple[str, ...], output: str | None, exact: bool, no_elision: bool, memory: bool,
             dependences: bool, reuse: bool, values: bool, affine: bool, paths: bool, unhook: int, rehook: int | None,
             overhead: float, trace: str | None, quiet: bool) -> Options:
    """Run PROGRAM and write a profile of it.

    The profile tells where the time goes, or what the program executes. memopt report shows it; memopt query answers
    questions about it.
    """
    from memopt.store.schema import StoreError, check_new

    memory |= reuse
    if dependences and memory:
        raise click.UsageError("--dependences finds dependences only; leave it out: --memory finds them, too")
    accesses = memory or dependences or trace is not None
    if paths and (affine or accesses or values):
        raise click.UsageError("--paths counts paths only; ask for the rest in another run")
    if values and accesses:
        raise click.UsageError("--values records no memory accesses; ask for them in another run")
    if affine and (exact or accesses or values):
        raise click.UsageError("--affine samples the program and counts nothing; ask for counts in another run")
    mode: ProfileMode = ("paths" if paths else "affine" if affine else "values" if values else "memory" if memory else
                         "dependences" if dependences else "exact" if exact or accesses else "sampled")
    try:
        path = profile_path(output, arguments[0])
        check_new(path)
    except StoreError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:  # getcwd fails
        raise click.UsageError(f"the current folder is gone ({error.strerror}); name a file in another folder with -o"
                               ) from error
    return Options(arguments=arguments, profile=path, mode=mode, elide=not no_elision, reuse=reuse,
                   trace=_writable("--trace", trace), quiet=quiet, unhook=0 if exact and paths else unhook,
                   rehook=rehook, overhead=overhead)


_limit = click.option("--limit", type=click.IntRange(1, 65536), default=64, show_default=True, metavar="MIB",
                      help="The most memory that a snapshot may hold.")


@_memopt.command("snapshot", context_settings={"allow_interspersed_args": False})
@click.option("-o", "--output", metavar="FILE", required=True, help="Write the snapshot to FILE.")
@click.option("--loop", metavar="ADDRESS|FUNCTION", default="",
              help="Keep the nest at this address (0x...) or in this function.  [default: the hottest]")
@_limit
@click.option("--isa", type=click.Choice([isa.value for isa in Isa]), help="Instruction set of the new code.")
@click.option("--quiet", is_flag=True, help="Write no report to standard error.")
@click.argument("arguments", metavar="PROGRAM [ARGUMENTS]...", nargs=-1, required=True, type=click.UNPROCESSED)
def _snapshot(arguments: tuple[str, ...], output: str, loop: str, limit: int, isa: str | None, quiet: bool) -> Options:
    """Run PROGRAM unchanged and keep the inputs of a hot loop nest.

    FILE holds what memopt replay needs to run the nest again, and so memory of the program: whatever it computes with,
    but neither its arguments nor its environment.
    """
    asked = Keeping(_snapshot_path("-o", output), nest=loop, limit=limit << 20)
    return Options(arguments=arguments, snapshot=asked, isa=None if isa is None else Isa(isa), quiet=quiet,
                   dry_run=True)


@_memopt.command("replay")
@click.option("--plan", metavar="FILE", help="Try the plan in FILE, in the text form of exec --print-after plan.")
@click.option("--isa", type=click.Choice([isa.value for isa in Isa]),
              help="Instruction set of the new code; sse2 runs in an emulator as well.")
@click.option("--fp", type=click.Choice(["exact", "fast"]), default="exact", show_default=True,
              help="As for exec: fast compares up to rounding.")
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=10.0, show_default=True, metavar="SECONDS",
              help="How long the nest may run, about.")
@_limit
@click.argument("file")
def _replay(file: str, plan: str | None, isa: str | None, fp: Literal["exact", "fast"], seconds: float,
            limit: int) -> int:
    """Run the nest in the snapshot FILE: the original and each version that memopt makes.

    Says for each version whether it computes the same bytes, and how fast. The code runs in a process that can make no
    system call. The exit code is 0 if all agree.
    """
    from memopt.snapshots.file import read
    from memopt.snapshots.form import SnapshotError

    text, agreed = None if plan is None else _text_of(plan), True
    try:
        snapshot = read(file, limit << 20)
        from memopt.session.driver import replay

        for same, line in replay(snapshot, text, None if isa is None else Isa(isa), fp, seconds):
            click.echo(line)
            agreed &= same
    except SnapshotError as error:
        say(f"{file}: {error}")
        return _FAILED
    except Exception as error:  # noqa: BLE001 - anybody may have written the file: the user must not see a traceback
        say(f"{file}: it cannot be replayed: {' '.join(f'{type(error).__name__}: {error}'.split())}")
        return _FAILED
    return 0 if agreed else _FAILED


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(1 << 20)
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--plan {path}: it cannot be read; name a file with a plan") from error


def _snapshot_path(option: str, path: str) -> str:
    """The absolute path of a snapshot to write: a new file beside ``path`` takes its place. Raises ``UsageError``."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise click.UsageError(f"{option} {path}: it is no regular file; name another one")
    _writable(option, path)
    return os.path.abspath(path)


@_memopt.command("query")
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True,
              help="Format of the answer.")
@click.option("--list", "names", is_flag=True, help="List the named queries.")
@click.option("--schema", is_flag=True, help="Show the tables of a profile, with all columns.")
@click.argument("file", required=False)
@click.argument("question", metavar="[SQL|NAME]", required=False)
def _query(file: str | None, question: str | None, form: str, names: bool, schema: bool) -> int:
    """Query the profile FILE, in SQL or by the name of a query."""
    from memopt.store import ask
    from memopt.store.schema import TABLES, StoreError

    if names or schema:
        click.echo("\n".join(ask.names()) if names else TABLES.strip())
        return 0
    if file is None or question is None:
        raise click.UsageError("name a file and a query, as in: memopt query FILE hot-loops")
    try:
        for line in ask.answer(file, question, form):
            click.echo(line)
    except StoreError as error:
        say(str(error))
        return _FAILED
    return 0


@_memopt.command("merge")
@click.option("-o", "--output", metavar="FILE", required=True, help="Write the merged profile to FILE.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def _merge(output: str, files: tuple[str, ...]) -> int:
    """Merge several profiles into one.

    Under mpirun each rank writes a profile of its own; this makes one of them.
    """
    from memopt.store.merge import merge
    from memopt.store.schema import StoreError

    if os.path.realpath(output) in map(os.path.realpath, files):
        raise click.UsageError(f"{output}: also one of the profiles to merge; name another file with -o")
    try:
        merge(output, files)
    except StoreError as error:
        say(str(error))
        return _FAILED
    return 0


@_memopt.command("trace")
@click.argument("file")
def _trace(file: str) -> int:
    """Print the memory trace FILE as text.

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


@_memopt.group("cache")
def _cache() -> None:
    """Show or clear the plans that memopt exec and attach keep from run to run."""


@_cache.command("list")
def _cache_list() -> int:
    """List what is kept, a line for each program file."""
    from memopt.plans.shown import listed

    for line in listed():
        click.echo(line)
    return 0


@_cache.command("show")
@click.argument("which", metavar="PROGRAM|NAME")
def _cache_show(which: str) -> int:
    """Show the plans and refusals that are kept for PROGRAM, or under NAME of the list."""
    from memopt.plans.shown import NothingKnown, shown

    try:
        for line in shown(which):
            click.echo(line)
    except NothingKnown as nothing:
        say(str(nothing))
        return _FAILED
    return 0


@_cache.command("clear")
@click.argument("which", metavar="[PROGRAM|NAME]...", nargs=-1)
def _cache_clear(which: tuple[str, ...]) -> int:
    """Remove what is kept for each PROGRAM, or all of it."""
    from memopt.plans.shown import NothingKnown, clear

    try:
        click.echo(clear(which))
    except NothingKnown as nothing:
        say(str(nothing))
        return _FAILED
    return 0


@_memopt.command("report")
@click.option("--least", type=click.FloatRange(0, 100), default=1.0, show_default=True, metavar="PERCENT",
              help="Leave out functions and loops with a smaller share.")
@click.option("--html", metavar="FILE", help="Write an interactive HTML page instead; it needs no network.")
@click.option("--speedscope", metavar="FILE", help="Write a file for speedscope instead.")
@click.option("--callgrind", metavar="FILE", help="Write a file for kcachegrind and callgrind_annotate instead.")
@click.argument("file")
def _report(file: str, least: float, html: str | None, speedscope: str | None, callgrind: str | None) -> int:
    """Show the profile FILE as a tree.

    Each function and loop stands below its caller or the loop around it.
    """
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


@_memopt.command("rewrite", options_metavar="-o FILE [OPTIONS]", epilog=_TRAIN)
@click.option("--undo", is_flag=True, help="Give back the original of FILE, which memopt has rewritten.")
@click.option("-o", "--output", metavar="FILE", required=True, help="Write the new file to FILE.")
@click.option("--isa", type=click.Choice([isa.value for isa in Isa]),
              help="Instruction set of the new code.  [default: the widest that this machine has]")
@click.argument("file")
@click.pass_obj
def _rewrite(trainings: list[list[str]] | None, file: str, output: str, undo: bool, isa: str | None) -> int:
    """Write a new program or library with faster loops, which needs no memopt to run.

    FILE is run under memopt on each training; the loops that gain are written into the new file. FILE itself is not
    changed."""
    if undo:
        if trainings or isa:
            raise click.UsageError("--undo needs no training and no --isa")
        from memopt.session.rewriting import inspection

        return inspection.undo(file, output)
    from memopt.session.rewriting.driver import rewrite

    return rewrite(file, output, trainings or (), Options(isa=Isa(isa) if isa else None))


@_memopt.command("inspect")
@click.option("--json", is_flag=True, help="Show it as JSON.")
@click.option("--pid", type=click.IntRange(min=1), metavar="PID",
              help="Show also how often process PID has entered the new code.")
@click.argument("file")
def _inspect(file: str, json: bool, pid: int | None) -> int:
    """Show what memopt did to the rewritten program or library FILE."""
    from memopt.session.rewriting import inspection

    return inspection.inspect(file, pid, json=json)


def _write(option: str, path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.UsageError(f"{option} {path}: {error.strerror}; name a file that can be written") from error


def _options(*, isa: str | None, no_shadow: bool, no_cache: bool, report: str | None, json: str | None,
             **rest: Any) -> Options:
    return Options(isa=None if isa is None else Isa(isa), shadow=not no_shadow, cache=not no_cache,
                   report=_writable("--report", report), json=_writable("--json", json), **rest)


def _writable(option: str, path: str | None) -> str | None:
    """Returns ``path`` if it can be written: the user learns of a mistake now, not after an hour's run.

    A pipe or a device is opened now, and its path is replaced by that of the descriptor: /dev/stdout and /dev/fd/63
    name inherited descriptors, which memopt closes once the program runs. Raises ``click.UsageError``.
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
        raise click.UsageError(f"{option} {path}: no file can be written there; name one that can be written")
    return path


def _without_trainings(words: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The words of ``memopt rewrite`` before the first --train, and those of each training."""
    own, trainings = list(words), list[list[str]]()
    if own[:1] == ["rewrite"] and "--train" in own:
        first = own.index("--train")
        own, rest = own[:first], own[first:]
        for word in rest:
            if word == "--train":
                trainings.append([])
            else:
                trainings[-1].append(word)
        if any(x[:1] != ["--"] for x in trainings):
            raise click.UsageError("-- is missing behind --train, as in: --train -- ARGUMENTS")
        trainings = [x[1:] for x in trainings]
    return own, trainings


def parse(words: Sequence[str]) -> Options | int:
    """Reads the words behind the command's name. Returns the options of the run; or an exit code, if the command has
    been carried out here or is wrong."""
    try:
        own, trainings = _without_trainings(words)
        parsed = _memopt.main(own, prog_name="memopt", standalone_mode=False, obj=trainings)
    except click.ClickException as error:
        say(f"{' '.join(error.format_message().split())}; see memopt --help")
        return _USAGE
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except (click.Abort, OSError):  # --help into a closed pipe or on a full disk
        return _FAILED
    # --help and --version return None
    return parsed if isinstance(parsed, Options | int) else 0
