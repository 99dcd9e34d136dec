"""The memory hierarchy and vector extensions of one machine, as a frozen value with a TOML text form.

Invariant: ``parse(machine.to_toml()) == machine``. Levels are ordered from the core outwards and hold data (an
instruction cache is not listed). ``extensions`` names only what may be executed: both CPUID and the operating
system (XCR0) say yes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memopt.ir.isa import Isa

# Intel SDM vol. 1, 13.3: the state components a vector extension needs enabled in XCR0.
XCR0_SSE = 1 << 1
XCR0_AVX = XCR0_SSE | 1 << 2
XCR0_AVX512 = XCR0_AVX | 0b111 << 5


@dataclass(frozen=True, slots=True)
class CacheLevel:
    """One cache that holds data. ``size`` and ``line`` in bytes; ``shared_by``: processors that share it."""

    name: str
    level: int
    size: int
    line: int
    ways: int
    shared_by: int

    @property
    def way_size(self) -> int:
        """Bytes after which addresses fall into the same sets again."""
        return self.size // self.ways

    @property
    def share(self) -> int:
        """Bytes that one processor can count on."""
        return self.size // self.shared_by


@dataclass(frozen=True, slots=True)
class Machine:
    """``page_size`` in bytes; ``frequency`` in MHz where known; ``xcr0`` is 0 where XGETBV is not available."""

    levels: tuple[CacheLevel, ...]
    page_size: int
    extensions: tuple[str, ...]
    xcr0: int
    model: str
    cores: int
    frequency: int | None = None

    def level(self, number: int) -> CacheLevel:
        """The cache of level ``number``, or the outermost one where the machine has fewer."""
        return next((c for c in self.levels if c.level == number), self.levels[-1])

    def to_toml(self) -> str:
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
    """Vector instruction sets that may be executed, best first. SSE2 is part of x86-64.

    Code for AVX-512F uses AVX2 and FMA for narrow values and BMI2 for masks; every such processor has them."""
    wanted = ((Isa.AVX512, {"avx512f", "avx2", "fma", "bmi2"}, XCR0_AVX512), (Isa.AVX2, {"avx2"}, XCR0_AVX))
    found = [i for i, names, state in wanted if names <= set(machine.extensions) and machine.xcr0 & state == state]
    return (*found, Isa.SSE2)


def has_fused_multiply_add(machine: Machine, isa: Isa) -> bool:
    """Whether a version for ``isa`` may use FMA: AVX-512F brings its own forms, AVX2 needs the FMA bit."""
    return isa is Isa.AVX512 or (isa is Isa.AVX2 and "fma" in machine.extensions)


def parse(text: str) -> Machine:
    """The machine a TOML text describes. Raises ``ValueError`` that names what is missing or out of range."""
    import tomllib

    try:
        table = tomllib.loads(text)
        levels = tuple(_level(entry) for entry in table["levels"])
        frequency = table.get("frequency")
        machine = Machine(
            levels=levels,
            page_size=_positive(table, "page_size"),
            extensions=tuple(str(name) for name in table["extensions"]),
            xcr0=int(table["xcr0"]),
            model=str(table["model"]),
            cores=_positive(table, "cores"),
            frequency=None if frequency is None else _positive(table, "frequency"),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"machine description: missing or malformed {error}") from error
    if not levels or [c.level for c in levels] != sorted({c.level for c in levels}):
        raise ValueError("machine description: levels must be given, each once, from the core outwards")
    return machine


def _level(entry: Mapping[str, object]) -> CacheLevel:
    sizes = {key: _positive(entry, key) for key in ("level", "size", "line", "ways", "shared_by")}
    return CacheLevel(name=str(entry["name"]), **sizes)


def _positive(table: Mapping[str, object], key: str) -> int:
    value = table[key]
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"machine description: {key} must be a positive integer, not {value!r}")
    return value


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04X}" for c in escaped) + '"'
