"""The form of a snapshot: the state of a process at the header of a loop nest, and its manifest.

Example: the product ``c[i][j] += a[i][k] * b[k][j]`` at the header of its outermost loop: 27 registers, the vector
state, the pages of the code, of the stack's end and of the three arrays.

In: a ``Snapshot``, or the JSON text of a manifest and the bytes of the pages. Out: the other one. Whatever a manifest
holds, ``parsed`` returns a ``Snapshot`` whose numbers are in range and whose pages are apart and in order, or raises
``SnapshotError``. ``VERSION`` is raised when a reader of the old form would misunderstand a new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

FORMAT, VERSION = "memopt-snapshot", 1
PAGE = 4096
TOP = (1 << 47) - PAGE  # end of the addresses that a program can map
WORD = 1 << 64
LOWEST = 1 << 16
# In the order of user_regs_struct (<sys/user.h>).
REGISTERS = ("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi",
             "orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs")
VECTORS, VECTOR_BYTES, MASKS, X87_BYTES = 32, 64, 8, 160
MOST_RANGES, MOST_NAMES, MOST_TEXT = 70_000, 4096, 4096

_T = TypeVar("_T")


class SnapshotError(Exception):
    """A snapshot cannot be written, read or used. The message is one line for the user."""


@dataclass(frozen=True, slots=True)
class MappedRange:
    """Addresses ``[start, end)`` of the program. ``access``: "r-x"; ``name``: of the file, without its folder, or
    "[heap]"."""

    start: int
    end: int
    access: str
    shared: bool
    name: str


@dataclass(frozen=True, slots=True)
class Pages:
    """Neighbouring pages with their content, from ``start`` on."""

    start: int
    content: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.content)


@dataclass(frozen=True, slots=True)
class VectorState:
    """The floating-point and vector state. ``x87``: the first 160 bytes of the FXSAVE area, without MXCSR. ``vectors``:
    zmm0 to zmm31, 64 bytes each, the lowest first, with zeros where the machine has less. ``masks``: k0 to k7."""

    mxcsr: int = 0x1F80
    x87: bytes = bytes(X87_BYTES)
    vectors: tuple[bytes, ...] = (bytes(VECTOR_BYTES),) * VECTORS
    masks: tuple[int, ...] = (0,) * MASKS


@dataclass(frozen=True, slots=True)
class Nest:
    """The loop nest. ``text``: the executable mapping; ``bias``: run-time less link-time addresses; ``extent``: of the
    function, if it is known; ``exits``: where the program goes on behind the nest; ``trips``: iterations of the
    outermost loop that are left, this one included."""

    function: str
    file: str
    header: int
    bias: int
    text: tuple[int, int]
    extent: tuple[int, int] | None
    exits: tuple[int, ...]
    trips: int


@dataclass(frozen=True, slots=True)
class Symbols:
    """What the program's files say about calls of the nest. ``slots``: symbols of slots of the global offset table, by
    the slot's address; ``functions``: names by address; ``exports``: "libm.so.6:exp"."""

    slots: Mapping[int, str] = field(default_factory=dict)
    functions: Mapping[int, str] = field(default_factory=dict)
    exports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at the header of ``nest``. ``why``: the reason it was kept; ``left_out``: what is not in it, in words;
    ``plans``: the plans that were tried, in text form; ``memopt``: the version of memopt that wrote it."""

    nest: Nest
    registers: Mapping[str, int]
    state: VectorState
    ranges: tuple[MappedRange, ...]
    pages: tuple[Pages, ...]
    symbols: Symbols = Symbols()
    plans: tuple[str, ...] = ()
    why: str = ""
    left_out: tuple[str, ...] = ()
    memopt: str = ""

    @property
    def size(self) -> int:
        """The bytes of all pages."""
        return sum(len(pages.content) for pages in self.pages)

    def read_some(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``address`` on, as far as they are in the snapshot without a gap."""
        found = b""
        for pages in self.pages:
            if pages.start <= address < pages.end:
                found += pages.content[address - pages.start:address - pages.start + size - len(found)]
                address = pages.end
        return found[:size]


# -- writing ----------------------------------------------------------------------------------------------------------


def manifest(snapshot: Snapshot) -> str:
    """The manifest of ``snapshot`` as JSON text."""
    nest, state = snapshot.nest, snapshot.state
    return _lines({
        "format": FORMAT, "version": VERSION, "memopt": snapshot.memopt, "why": snapshot.why,
        "left_out": list(snapshot.left_out),
        "nest": {"function": nest.function, "file": nest.file, "header": hex(nest.header), "bias": hex(nest.bias),
                 "text": [hex(x) for x in nest.text],
                 "extent": None if nest.extent is None else [hex(x) for x in nest.extent],
                 "exits": [hex(x) for x in nest.exits], "trips": nest.trips},
        "registers": {name: hex(snapshot.registers[name]) for name in REGISTERS},
        "mxcsr": hex(state.mxcsr), "x87": state.x87.hex(),
        "vectors": {f"zmm{n}": v.hex() for n, v in enumerate(state.vectors) if any(v)},
        "masks": {f"k{n}": hex(v) for n, v in enumerate(state.masks) if v},
        "ranges": [[hex(r.start), hex(r.end), r.access + "ps"[r.shared], r.name] for r in snapshot.ranges],
        "symbols": {"slots": {hex(a): n for a, n in snapshot.symbols.slots.items()},
                    "functions": {hex(a): n for a, n in snapshot.symbols.functions.items()},
                    "exports": list(snapshot.symbols.exports)},
        "plans": list(snapshot.plans),
        "pages": [[hex(p.start), len(p.content)] for p in snapshot.pages],
    })


def _lines(found: Mapping[str, Any]) -> str:
    """JSON with a line for each element of ``found`` and of the lists and objects in it."""
    def rows(value: Any) -> str:
        if isinstance(value, dict) and value:
            return "{" + ",".join(f"\n  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n }"
        if isinstance(value, list) and value:
            return "[" + ",".join(f"\n  {json.dumps(v)}" for v in value) + "\n ]"
        return json.dumps(value)

    return "{" + ",".join(f"\n {json.dumps(name)}: {rows(value)}" for name, value in found.items()) + "\n}\n"


# -- reading ----------------------------------------------------------------------------------------------------------


def page_sizes(text: bytes) -> tuple[dict[str, Any], int]:
    """The manifest ``text`` as JSON, and how many bytes of pages belong to it. Raises ``SnapshotError``."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SnapshotError("its manifest is not JSON") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise SnapshotError("it is not a snapshot of memopt")
    if found.get("version") != VERSION:
        raise SnapshotError(f"it has version {str(found.get('version'))[:20]} of the form, and this memopt reads "
                            f"{VERSION}")
    return found, sum(size for _, size in _runs(found))


def parsed(found: dict[str, Any], content: bytes) -> Snapshot:
    """The snapshot of the manifest ``found`` (``page_sizes``) and the bytes of its pages. Raises ``SnapshotError``."""
    try:
        return _snapshot(found, content)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise SnapshotError("its manifest lacks something, or holds something else in its place") from error


def _snapshot(found: dict[str, Any], content: bytes) -> Snapshot:
    at, pages = 0, []
    for start, size in _runs(found):
        pages.append(Pages(start, content[at:at + size]))
        at += size
    symbols = _of(found["symbols"], dict)
    return Snapshot(
        _nest(_of(found["nest"], dict)), {name: _number(found["registers"][name]) for name in REGISTERS},
        _state(found), tuple(map(_range, _list(found["ranges"], MOST_RANGES))), tuple(pages),
        Symbols(_names(symbols["slots"]), _names(symbols["functions"]),
                tuple(map(_text, _list(symbols["exports"], MOST_NAMES)))),
        tuple(_text(p, 1 << 16) for p in _list(found["plans"], 64)), _text(found["why"]),
        tuple(map(_text, _list(found["left_out"], 64))), _text(found["memopt"]))


def _nest(found: dict[str, Any]) -> Nest:
    extent = found["extent"]
    return Nest(_text(found["function"]), _text(found["file"]), _address(found["header"]), _number(found["bias"]),
                _interval(found["text"]), None if extent is None else _interval(extent),
                tuple(map(_address, _list(found["exits"], MOST_NAMES))), _within(found["trips"], WORD // 2))


def _state(found: dict[str, Any]) -> VectorState:
    x87 = _bytes(found["x87"], X87_BYTES)
    vectors, masks = _of(found["vectors"], dict), _of(found["masks"], dict)
    if not vectors.keys() <= {f"zmm{n}" for n in range(VECTORS)} or not masks.keys() <= {f"k{n}" for n in range(MASKS)}:
        raise ValueError("a register that does not exist")
    return VectorState(
        _number(found["mxcsr"], 1 << 16), x87,
        tuple(_bytes(vectors[name], VECTOR_BYTES) if (name := f"zmm{n}") in vectors else bytes(VECTOR_BYTES)
              for n in range(VECTORS)),
        tuple(_number(masks.get(f"k{n}", "0x0")) for n in range(MASKS)))


def _runs(found: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """Address and size of each run of pages: whole pages, in order, apart from each other. Raises SnapshotError."""
    last = LOWEST
    try:
        for start, size in _list(found["pages"], MOST_RANGES):
            address = _address(start)
            if address < last or address % PAGE or _within(size, TOP) % PAGE or not 0 < size <= TOP - address:
                raise ValueError(start)
            last = address + size
            yield address, size
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotError("its list of pages is not in order") from error


def _range(row: Any) -> MappedRange:
    start, end, access, name = _list(row, 4)
    low, high = _interval([start, end])
    if len(_text(access)) != 4 or any(a not in (b, "-") for a, b in zip(access[:3], "rwx", strict=True)):
        raise ValueError(access)
    return MappedRange(low, high, access[:3], access[3] == "s", _text(name))


def _interval(pair: Any) -> tuple[int, int]:
    low, high = (_number(x) for x in _list(pair, 2))
    if not low < high:
        raise ValueError(pair)
    return low, high


def _address(text: Any) -> int:
    return _number(text, TOP)


def _number(text: Any, limit: int = WORD) -> int:
    """A number in hexadecimal, in [0, ``limit``)."""
    return _within(int(_text(text, 20), 16), limit)


def _within(number: Any, limit: int) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < limit:
        raise ValueError(number)
    return number


def _bytes(text: Any, size: int) -> bytes:
    found = bytes.fromhex(_text(text))
    if len(found) != size:
        raise ValueError(text)
    return found


def _names(found: Any) -> dict[int, str]:
    return {_number(a): _text(n) for a, n in _of(found, dict).items()} if len(found) <= MOST_NAMES else _fail(found)


def _fail(found: Sequence[object]) -> dict[int, str]:
    raise ValueError(len(found))


def _list(found: Any, most: int) -> list[Any]:
    if len(_of(found, list)) > most:
        raise ValueError(most)
    return found  # type: ignore[no-any-return]


def _text(found: Any, most: int = MOST_TEXT) -> str:
    if len(_of(found, str)) > most:
        raise ValueError(most)
    return str(found)


def _of(found: Any, kind: Callable[..., _T]) -> Any:
    if not isinstance(found, kind):  # type: ignore[arg-type]
        raise TypeError(kind)
    return found
