"""The versions of all trainings become one piece of code for a file, with zeroed memory behind the file's own.

Example: two versions of the product at 0x1190, for n = 400 and n = 500, and one of a stencil. The header at 0x1190
jumps to the first version, which goes on to the second where its guards fail, which goes on to the original.

In: the file, the versions. Out: an ``Addition`` for ``memopt.elf.rewriting``. Code is generated for the addresses of
the process that a version was trained in, moved by the load bias: the bytes are the same for every bias, because the
code holds no address.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memopt.elf.frame_rows import UnwindRows, in_frame, row_at
from memopt.elf.image import Image
from memopt.elf.rewriting.record import VersionRecord
from memopt.elf.rewriting.refusals import check_displaced, check_reach, check_scratch
from memopt.elf.rewriting.room import room
from memopt.elf.rewriting.writer import Addition, Patch
from memopt.ir.code import STATISTICS_ENTRIES, STATISTICS_RUNS, CompiledRegion, Placement
from memopt.session.replacing.reservation import CODE_BYTES, FRAME_BYTES
from memopt.session.replacing.versions import followed_by
from memopt.session.rewriting.training import Trained
from memopt.x86.decoder import decode
from memopt.x86.frame import IN_FILE, REST, FrameLayout, align
from memopt.x86.relocate import JUMP_SIZE
from runtime.patching.install import jump_bytes

if TYPE_CHECKING:
    from memopt.ir.isa import Isa
    from memopt.machine.description import Machine

_STATISTICS = 64  # bytes of the state
_ALIGNMENT = 64
MOST = 8  # versions of a loop
_MOST_IMAGE = 1 << 31  # bytes; distances in code of the small model have 32 bits
_CALLEE_SAVED = {3: "rbx", 6: "rbp", 12: "r12", 13: "r13", 14: "r14", 15: "r15"}  # by DWARF number


@dataclass(frozen=True, slots=True)
class _Placed:
    trained: Trained
    compiled: CompiledRegion  # at link-time addresses
    statistics: int  # offset in the state


def addition(image: Image, trained: Sequence[Trained], machine: Machine) -> Addition:
    """The versions ``trained`` for ``image``, in the order of ``chosen``. Raises ``NotRewritable``
    where the file forbids it, Rejected where code does not fit."""
    by_header: dict[int, list[Trained]] = defaultdict(list)
    for each in trained:
        by_header[each.header].append(each)
    state = sum(_state_bytes(t) for t in trained)
    check_scratch(image, state)
    place = room(image, align(state, 4096))
    code, used, placed = bytearray(), 0, list[list[_Placed]]()
    for header in sorted(by_header):
        check_reach(place.code, header)
        first = by_header[header][0]
        function = first.header  # landing pads are looked up by any address of the function
        check_displaced(image, function, range(header, header + len(first.region.displaced)),
                        calls=any(i.mnemonic == "call" for i in first.displaced.instructions))
        chain = list[_Placed]()
        for each in by_header[header]:
            code += b"\xcc" * (align(len(code), _ALIGNMENT) - len(code))
            chain.append(_Placed(each, _compiled(each, place.code + len(code), place.state + used, machine), used))
            code += chain[-1].compiled.code
            used += _state_bytes(each)
        placed.append(chain)
    for chain in placed:
        for one, behind in zip(chain, (*chain[1:], None), strict=True):
            at = one.compiled.placement.code - place.code
            made = followed_by(one.compiled, None if behind is None else behind.compiled)
            code[at:at + len(made)] = made
    patches = tuple(Patch(chain[0].trained.header, jump_bytes(chain[0].trained.header, chain[0].compiled.entry))
                    for chain in placed)
    records = tuple(_record(x, machine) for chain in placed for x in chain)
    rows = tuple(x for chain in placed for each in chain if (x := _unwind(image, each)) is not None)
    return Addition(bytes(code), used, patches, records, state_limit=align(state, 4096), unwind=rows)


def _state_bytes(trained: Trained) -> int:
    return _STATISTICS + FRAME_BYTES + align(trained.scratch, _ALIGNMENT)


def _compiled(trained: Trained, code: int, state: int, machine: Machine) -> CompiledRegion:
    """The version for these link-time addresses."""
    from passes.version.generate import generate
    from passes.version.kernel import nest_kernel

    frame = state + _STATISTICS
    linked = Placement(code, CODE_BYTES, frame, FRAME_BYTES, state, frame + FRAME_BYTES,
                       align(trained.scratch, _ALIGNMENT), in_file=True)
    live = _moved(linked, trained.bias)
    kernel = functools.partial(nest_kernel, trained.parts, trained.plan, placement=live)
    made = generate(trained.region, trained.plan, kernel, live, trained.displaced.code, machine.xcr0,
                    parts=trained.parts, chunk=trained.chunk)
    return replace(made, placement=linked, entry=made.entry - trained.bias, kernel=made.kernel - trained.bias)


def _moved(place: Placement, by: int) -> Placement:
    return replace(place, code=place.code + by, frame=place.frame + by, statistics=place.statistics + by,
                   scratch=place.scratch + by)


def _layout(trained: Trained) -> FrameLayout:
    return FrameLayout.build((*(x.symbol for x in trained.region.live_ins), *IN_FILE), 0)


def _unwind(image: Image, placed: _Placed) -> UnwindRows | None:
    """How profilers and debuggers find the caller from the new code: as at the header of the loop, where the stack
    pointer stays; but while rbp holds the frame, registers at the header are found there."""
    found = row_at(image, placed.trained.header)
    if found is None:
        return None
    compiled, layout = placed.compiled, _layout(placed.trained)
    slots = {number: layout.register(name) for number, name in _CALLEE_SAVED.items()}
    start, framed = compiled.placement.code, False
    rows = [replace(found, start=start)]
    for each in decode(compiled.code, start):
        text, now = f"{each.mnemonic} {each.operands_text}", framed
        if text.startswith("lea rbp, [rip"):
            now = True
        elif text.startswith("mov rbp, qword ptr [rip"):
            now = False
        elif each.mnemonic == "jmp" and each.end >= compiled.kernel:  # what stands behind it is jumped to from inside
            now = True
        if now != framed and each.end < start + len(compiled.code):
            rows.append(in_frame(found, each.end, slots) if now else replace(found, start=each.end))
        framed = now
    return UnwindRows(start, start + len(compiled.code), tuple(rows))


def _record(placed: _Placed, machine: Machine) -> VersionRecord:
    from passes.version.file_entry import least_work

    trained, compiled = placed.trained, placed.compiled
    region = replace(trained.region, header=trained.header,
                     code=tuple((address - trained.bias, data) for address, data in trained.region.code))
    layout = _layout(trained)
    start, guards = compiled.placement.code, (*region.guards, *least_work(region))
    return VersionRecord(
        trained.header, trained.function, tuple(map(str, guards)), _linked(str(region), trained.bias),
        str(trained.plan), trained.plan.isa.value, machine.model, trained.scratch, (start, start + len(compiled.code)),
        placed.statistics + STATISTICS_ENTRIES, placed.statistics + STATISTICS_RUNS,
        placed.statistics + _STATISTICS + layout.symbols[REST],
        () if trained.gain is None else (("speedup", round(trained.gain, 2)),))


def _linked(text: str, bias: int) -> str:
    """``text`` with link-time addresses in its remarks: "the branch at 0x1a74 goes one way"."""
    def number(found: re.Match[str]) -> str:
        address = int(found[0], 16)
        return hex(address - bias) if bias <= address < bias + _MOST_IMAGE else found[0]

    return re.sub(r"\b0x[0-9a-f]+", number, text)


def chosen(trained: Iterable[Trained]) -> tuple[Trained, ...]:
    """The versions of ``trained`` that the file gets, in the order in which they are asked: wide vectors first, then
    what was used most. Of several versions for the same entries and processors it gets one, of one loop ``MOST``. A
    version is left out whose own code another one's patch would change, as that of a loop around a patched one."""
    ranked = sorted(trained, key=lambda t: (-t.plan.isa.vector_bytes, -t.seconds))
    kept: dict[tuple[int, Isa, str], Trained] = {}
    for each in ranked:
        key = each.header, each.plan.isa, "\n".join(sorted(map(str, each.region.guards)))
        others = [k for k in kept.values() if k.header != each.header]
        if (key not in kept and sum(k.header == each.header for k in kept.values()) < MOST
                and not any(_patches(each, other) or _patches(other, each) for other in others)):
            kept[key] = each
    return tuple(kept.values())


def _patches(one: Trained, other: Trained) -> bool:
    """Whether the jump to ``one`` lies in the code that ``other`` was made from."""
    first, last = one.header, one.header + JUMP_SIZE
    return any(address - other.bias < last and first < address - other.bias + len(data)
               for address, data in other.region.code)
