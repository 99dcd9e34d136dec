"""The machine description: memory hierarchy and vector extensions, as a frozen value with a TOML text form.

Example::

    extensions = ["sse2", "avx2", "fma"]
    [[levels]]
    name = "L1d"
    size = 49152
    ways = 12

In: the values that ``detect`` finds, or a TOML text (``parse``). Out: a ``Machine``; its TOML text; the instruction
sets that versions may use. ``parse(machine.to_toml()) == machine``. Levels are ordered from the core outwards and hold
data (an instruction cache is not listed). ``extensions`` names only instructions that may be executed: CPUID has them
and the operating system has enabled their state in XCR0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from memopt.ir.frozen import dataclass
from memopt.ir.isa import Isa

# Intel SDM vol. 1, 13.3: the state components a vector extension needs enabled in XCR0.
XCR0_SSE = 1 << 1
XCR0_AVX = XCR0_SSE | 1 << 2
XCR0_AVX512 = XCR0_AVX | 0b111 << 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CacheLevel:
    """One cache that holds data."""

    name: str
    level: int
    size: int  # bytes
    line: int  # bytes
    ways: int  # associativity
    shared_by: int  # processors that share it

    @property
    def way_size(self) -> int:
        """Bytes of one way: addresses that far apart fall into the same set."""
        return self.size // self.ways

    @property
    def share(self) -> int:
        """Bytes that one processor can count on: the size divided by the processors that share the cache."""
        return self.size // self.shared_by


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine: its data caches, vector extensions and clock rate."""

    levels: tuple[CacheLevel, ...]  # from the core outwards
    page_size: int  # bytes
    extensions: tuple[str, ...]  # "sse2", "avx2", "avx512f", ...
    xcr0: int  # state components that the operating system has enabled; 0 where XGETBV does not exist
    model: str  # the processor's brand string
    cores: int  # processors that the system sees
    frequency: int | None = None  # MHz, where known

    def level(self, number: int) -> CacheLevel:
        """The cache of level ``number``, or the outermost one where the machine has fewer."""
        return next((c for c in self.levels if c.level == number), self.levels[-1])

    def to_toml(self) -> str:
        """The TOML text that ``parse`` reads."""
        lines = [f"model = {_quote(self.model)}", f"cores = {self.cores}", f"page_size = {self.page_size}"]
        if self.frequency is not None:
            lines.append(f"frequency = {self.frequency}  # MHz")
        lines += [f"xcr0 = {self.xcr0:#x}", f"extensions = [{', '.join(map(_quote, self.extensions))}]"]
        for cache in self.levels:
            lines += ["", "[[levels]]", f"name = {_quote(cache.name)}", f"level = {cache.level}"]
            lines += [f"size = {cache.size}", f"line = {cache.line}", f"ways = {cache.ways}"]
            lines += [f"shared_by = {cache.shared_by}"]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        caches = ", ".join(f"{c.name} {c.size // 1024} KiB {c.ways}-way" for c in self.levels)
        return f"{self.model}, {self.cores} cores, {caches}, {' '.join(self.extensions)}"


def usable_isas(machine: Machine) -> tuple[Isa, ...]:
    """The vector instruction sets that may be executed, best first. SSE2 is part of x86-64.

    Code for AVX-512F also uses AVX2 and FMA, for narrow values, and BMI2, for masks. Every processor with AVX-512F has
    them.
    """
    wanted = ((Isa.AVX512, {"avx512f", "avx2", "fma", "bmi2"}, XCR0_AVX512), (Isa.AVX2, {"avx2"}, XCR0_AVX))
    found = [i for i, names, state in wanted if names <= set(machine.extensions) and machine.xcr0 & state == state]
    return (*found, Isa.SSE2)


def has_fused_multiply_add(machine: Machine, isa: Isa) -> bool:
    """Whether a version for ``isa`` may use fused multiply-adds: AVX-512F has its own, AVX2 needs the FMA bit."""
    return isa is Isa.AVX512 or (isa is Isa.AVX2 and "fma" in machine.extensions)


def parse(text: str) -> Machine:
    """The machine that a TOML text describes; raises ``ValueError`` that names a missing or malformed key."""
    import tomllib

    try:
        table = tomllib.loads(text)
        levels = tuple(_level(entry) for entry in _list(table, "levels", dict, "tables"))
        machine = Machine(
            levels=levels,
            page_size=_positive(table, "page_size"),
            extensions=tuple(_list(table, "extensions", str, "texts")),
            xcr0=_typed(table, "xcr0", int, "an integer"),
            model=_typed(table, "model", str, "a text"),
            cores=_positive(table, "cores"),
            frequency=_positive(table, "frequency") if "frequency" in table else None,
        )
    except KeyError as error:
        raise ValueError(f"machine description: the key {error} is missing") from error
    if not levels or [c.level for c in levels] != sorted({c.level for c in levels}):
        raise ValueError("machine description: list the cache levels from the core outwards, each once")
    return machine


def _level(entry: Mapping[str, object]) -> CacheLevel:
    sizes = {key: _positive(entry, key) for key in ("level", "size", "line", "ways", "shared_by")}
    return CacheLevel(name=_typed(entry, "name", str, "a text"), **sizes)


def _positive(table: Mapping[str, object], key: str) -> int:
    value = _typed(table, key, int, "a positive integer")
    if value <= 0:
        raise ValueError(f"machine description: {key} must be a positive integer, not {value!r}")
    return value


def _list(table: Mapping[str, object], key: str, kind: type[T], plural: str) -> list[T]:
    values = _typed(table, key, list, f"a list of {plural}")
    for value in values:
        if not isinstance(value, kind):
            raise ValueError(f"machine description: {key} must be a list of {plural}; it has {value!r}")
    return values


def _typed(table: Mapping[str, object], key: str, kind: type[T], article: str) -> T:
    value = table[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"machine description: {key} must be {article}, not {value!r}")
    return value


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04X}" for c in escaped) + '"'
