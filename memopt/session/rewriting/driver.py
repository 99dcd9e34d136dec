"""``memopt rewrite``: a new ELF file with the versions that trainings have found.

Example: ``memopt rewrite ./prog -o ./prog.fast --train -- 2048``. The program is trained twice, at different addresses:
the second time every loop is lifted with the values of the first in view, so that pointers are no numbers, and with
those of a supposed other size, so that sizes are none. It is trained once more for each narrower instruction set. Then
the file is written, run on every training, compared with the original, and put in place.

In: paths and command lines. Out: an exit code, the file, and a report on standard error. Nothing is written where no
loop gains, where the file may not be changed (``memopt.elf.rewriting.refusals``), or where an output differs.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memopt.console import say, say_internal
from memopt.elf.executable import check_rewritten
from memopt.elf.image import ElfError, Image
from memopt.elf.rewriting.files import replace_file
from memopt.elf.rewriting.record import Record, record_of
from memopt.elf.rewriting.refusals import check_file, is_program
from memopt.elf.rewriting.writer import written
from memopt.ir.reasons import Rejected
from memopt.machine.description import usable_isas
from memopt.options import Options
from memopt.session.replacing.process import detected_machine
from memopt.session.rewriting.assembly import addition, chosen
from memopt.session.rewriting.runs import Run, run
from memopt.session.rewriting.training import Trained, Training, train
from runtime.launch.identify import CannotRun

if TYPE_CHECKING:
    from memopt.ir.region import Sample as Entry

_FAILED, _NOTHING = 1, 3
LEAST_GAIN = 1.05  # of a loop: nobody takes its version out again where it loses
_LOSS = 0.98  # of the original's speed: a file that is slower on the trainings is not kept


class NoGain(Exception):
    """There is nothing to write; the message says why."""


@dataclass(frozen=True, slots=True)
class Job:
    """``file``: the program or library, ``output``: where the new file goes. ``trainings``: command lines, argv[0]
    included. ``preload``: the new file is preloaded, because it is a library."""

    file: str
    output: str
    trainings: tuple[tuple[str, ...], ...]
    preload: bool
    options: Options


def rewrite(file: str, output: str, trainings: Sequence[Sequence[str]], options: Options) -> int:
    """Write the file ``output``. ``trainings``: arguments of a program, or for a library whole command lines; none: the
    program is run once without arguments. The exit code: 0, 1 for a failure, 3 where nothing gains."""
    try:
        job = _job(file, output, trainings, options)
        _rewrite(job)
    except NoGain as nothing:
        say(f"{file}: nothing written: {nothing}")
        return _NOTHING
    except CannotRun as error:
        say(str(error))
        return _FAILED
    except (ElfError, Rejected, OSError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        say(f"{file}: not rewritten: {why}")
        return _FAILED
    except Exception as error:  # noqa: BLE001 - the last resort: the user must not see a traceback
        say_internal("rewrite", error)
        return _FAILED
    return 0


def _job(file: str, output: str, trainings: Sequence[Sequence[str]], options: Options) -> Job:
    path = os.path.realpath(file)
    with Image(path) as image:
        check_file(image, path)
        library = not is_program(image)
    if library and not trainings:
        raise NoGain("a library is trained by programs that load it: add --train -- PROGRAM ARGUMENTS")
    if os.path.exists(output) and os.path.samefile(output, path):
        raise NoGain("-o names the file itself; name another file")
    commands = [tuple(words) for words in trainings] if library else [(file, *words) for words in trainings or ((),)]
    if any(not words for words in commands):
        raise NoGain("a library is trained by programs that load it: name one behind --train --")
    program = file if "/" in file else os.path.join(".", file)
    return Job(path, output, tuple(commands if library else ((program, *c[1:]) for c in commands)), library,
               replace(options, quiet=True, cache=False))


def _rewrite(job: Job) -> None:
    before = _digest(job.file)
    trained, firsts = _trained(job)
    with Image(job.file) as image, tempfile.TemporaryDirectory() as folder:
        content = written(image, addition(image, trained, detected_machine()))
        if _digest(job.file) != before:
            raise NoGain("the file was changed meanwhile")
        made = os.path.join(folder, os.path.basename(job.file))
        replace_file(made, content, job.file)
        check_rewritten(image.read(0, image.size), content)
        _compare(job, made, firsts)
    replace_file(job.output, content, job.file)
    for version in trained:
        gain = "" if version.gain is None else f", {version.gain:.1f} times as fast in the training"
        say(f"{version.function or hex(version.header)} at {version.header:#x}: {version.plan.summary}{gain}")
    loops = len({version.header for version in trained})
    say(f"{job.output}: {loops} loop{'s' if loops != 1 else ''} replaced, {len(trained)} "
        f"version{'s' if len(trained) != 1 else ''}, "
        f"{len(content) - os.path.getsize(job.file) >> 10} KiB longer; memopt inspect {job.output} shows them")


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _trained(job: Job) -> tuple[tuple[Trained, ...], tuple[Training | None, ...]]:
    """The versions for the file, and the first training of each command line; None where the second one ended in
    another way, so that nothing can be compared with it.

    The first trainings only show values, and for each loop another size is supposed. The second ones make versions
    for the widest instruction set. Loops that had versions only when nothing was supposed, which is quicker to lift,
    are trained once more without. Where there are versions, further trainings make those for narrower sets: the file
    may come to another processor."""
    known: dict[int, tuple[Entry, ...]] = {}
    firsts = _round(job, job.options, known, {})
    supposed = {header: entry for first in firsts for header, entry in first.supposed.items()}
    seconds = _round(job, job.options, known, supposed)
    made = list(_gaining(seconds))
    compared = tuple(one if _same(one, two) else None for one, two in zip(firsts, seconds, strict=True))
    for words, first in zip(job.trainings, compared, strict=True):
        if first is None:
            say(f"{' '.join(words)} prints something else each time: its output cannot be compared")
    lost = {version.header for version in _gaining(firsts)} - {version.header for version in made}
    supposed = {header: entry for header, entry in supposed.items() if header not in lost}
    narrower = usable_isas(detected_machine())[1:] if job.options.isa is None and (made or lost) else ()
    for isa in (*([job.options.isa] if lost else []), *narrower):
        results = _round(job, replace(job.options, isa=isa), known, supposed)
        for words, first, other in zip(job.trainings, compared, results, strict=True):
            if first is not None and not _same(first, other):
                raise NoGain(_fault(words))
        made += _gaining(results)
    if not made:
        raise NoGain(_why(seconds))
    return chosen(made), compared


def _round(job: Job, options: Options, known: dict[int, tuple[Entry, ...]], supposed: Mapping[int, Entry]
           ) -> list[Training]:
    """One training of each command line; ``known`` gets the values they show. ``supposed``: see ``Training``."""
    results = list[Training]()
    for words in job.trainings:
        told = {header: (*entries, supposed[header]) if header in supposed else entries
                for header, entries in known.items()}
        results.append(train(job.file, words, told, options))
        for header, entries in results[-1].entries.items():
            known[header] = (*known.get(header, ()), *entries)
    return results


def _gaining(trainings: Sequence[Training]) -> Iterator[Trained]:
    return (v for training in trainings for v in training.versions if v.gain is None or v.gain >= LEAST_GAIN)


def _same(one: Training, two: Training) -> bool:
    return (one.exit_value, one.output) == (two.exit_value, two.output)


def _fault(words: Sequence[str]) -> str:
    return f"{' '.join(words)} ends in another way with new code: this is a fault of memopt"


def _why(trainings: Sequence[Training]) -> str:
    refusals = sorted((r for t in trainings for r in t.refusals), key=lambda r: -r.share)
    if not refusals:
        return "no loop was hot for long enough; train with a longer run"
    return "; ".join(dict.fromkeys(f"{r.where}: {r.why}" for r in refusals[:3]))


def _compare(job: Job, made: str, firsts: Sequence[Training | None]) -> None:
    """Runs the new file on every training. Raises ``NoGain`` where its output is another, or it is slower."""
    with Image(made) as image:
        record = record_of(image)
    assert record is not None
    ran = [0] * len(record.versions)
    original = new = 0.0
    for words, first in zip(job.trainings, firsts, strict=True):
        native, rewritten = run(words), _run(job, made, words, record)
        original, new = original + native.seconds, new + rewritten.seconds
        ran = [a + b for a, b in zip(ran, rewritten.runs or [0] * len(ran), strict=True)]
        wanted = (native.output, native.exit_value)
        if first is not None and not wanted == (first.output, first.exit_value) == (rewritten.output,
                                                                                  rewritten.exit_value):
            raise NoGain(_fault(words))
    if not any(ran):
        raise NoGain("its versions did not run in a third process")
    if new * _LOSS > original:
        raise NoGain(f"it takes {new:.2f} s where the original takes {original:.2f} s")


def _run(job: Job, made: str, words: Sequence[str], record: Record) -> Run:
    if job.preload:
        return run(words, environment={"LD_PRELOAD": made}, watched=(made, record))
    return run(words, executable=made, watched=(made, record))
