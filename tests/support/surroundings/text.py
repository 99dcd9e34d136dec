"""The text in C of a nest with surroundings: its function, a copy of it that can be limited, and the file that calls
both.

Example, with a counter behind the rows and a stop flag::

    for (long i = 0; i < n && !control->stop; i++) { ...; control->progress = i; }

Every function has the structure ``control`` (surroundings.h) as its last argument.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.random_nests.program import Layout, Loop, Node, Program
from tests.support.random_nests.text import HEADER, Writer
from tests.support.surroundings.draw import CALLS, ROUNDS, Forms

# A constant in the code, as an immediate operand whose place is known: patch_sites lists it, however often the compiler
# writes the loop.
_MARK = """{ int m; __asm__ volatile("movl $%d, %%0\\n1:\\n.pushsection patch_sites,\\"aw\\"\\n.quad 1b - 4\\n"
 ".popsection" : "=r"(m)); control->mark += m; }"""
_CONTROL = "struct control *control"


class SurroundedWriter(Writer):
    """Writes the function under ``name``; ``limited``: the copy that leaves off after ``control->left`` iterations."""

    def __init__(self, program: Program, forms: Forms, *, limited: bool = False) -> None:
        super().__init__(program)
        self.forms, self.limited = forms, limited

    @property
    def function(self) -> str:
        return f"{'limited' if self.limited else 'f'}{self.program.seed}"

    def nodes(self, body: tuple[Node, ...], depth: int) -> list[str]:
        if depth != 1:
            return super().nodes(body, depth)
        loop, = body
        assert isinstance(loop, Loop)
        before, behind = self._extras(loop)
        pad = " " * 8
        return [f"    {self._outermost(loop)} {{", *(pad + line for line in before), *super().nodes(loop.body, 2),
                *(pad + line for line in behind), "    }"]

    def _outermost(self, loop: Loop) -> str:
        first, test, step = self.head(loop).split(";")
        if self.forms.plugged and not self.limited:
            first += f" + {loop.step} * PLUG"
        if self.forms.stops:
            test += " && !control->stop"
        if self.limited:
            test += " && control->left-- > 0"
        return ";".join((first, test, step))

    def _extras(self, loop: Loop) -> tuple[list[str], list[str]]:
        """Statements before and behind what an outer iteration does."""
        forms = self.forms
        fence = '__asm__ volatile("" ::: "memory");'  # compilers keep the order, too
        counted = f"{fence} control->progress = {loop.var}; {fence}"
        if forms.released:
            counted = f"__atomic_store_n(&control->progress, (long){loop.var}, __ATOMIC_RELEASE);"
        mark = [(_MARK % forms.mark).replace("\n", " ")] if forms.mark and not self.limited else []
        if forms.mark and self.limited:
            mark = [f"control->mark += {forms.mark};"]
        return [counted] if forms.counts == 1 else [], [*mark, *([counted] if forms.counts == 2 else [])]

    def parameters(self) -> str:
        return f"{super().parameters()}, {_CONTROL}".removeprefix("void, ")

    def written(self, sizes: tuple[int, ...]) -> str:
        """The file with the function alone."""
        text = self.nest(sizes).replace(f" f{self.program.seed}(", f" {self.function}(")
        return f'#include "surroundings.h"\n{HEADER}\n{text}\n'

    def call_of(self, layout: Layout, number: int, function: str) -> str:
        arguments = []
        for array in self.program.arrays:
            region, offset = layout.pointers[number][array.name]
            arguments.append(f"(void *)(region[{region}] + {offset}L)")
        arguments += ["control->rounds" if name == ROUNDS else str(values[number])
                      for name, _, values in self.program.sizes]
        arguments += [text for _, _, text in self.program.scalars]
        return f"{function}({', '.join((*arguments, 'control'))})"


def caller(program: Program, forms: Forms, layout: Layout, code_size: int, iterations: int) -> str:
    """The file that describes the nest (surroundings.h), for the driver. Tables come from the assembler:
    ``tables.s``."""
    writer = SurroundedWriter(program, forms)
    kinds = [{"double": 8, "float": 4}.get(a.type.name, 1) for a in program.arrays]
    regions = range(len(program.arrays))
    lines = ['#include "surroundings.h"', HEADER]
    lines += writer.scoped([line for line in writer.declarations(layout.sizes) if line.startswith("struct")])
    parameters = writer.scope(writer.parameters())
    name = f"f{program.seed}"
    own = "" if forms.plugged else f"extern void {name}({parameters});"
    lines += [own, f"extern void limited{program.seed}({parameters});",
              f"void *nest_code = {'0' if forms.plugged else f'(void *){name}'};", f'const char *nest_name = "{name}";']
    for what in ("run", "limited"):
        lines.append(f"static void {what}(int call, unsigned char **region, struct control *control)\n{{")
        if what == "run":
            lines.append(f"    void (*f)({parameters}) = nest_code;")
        lines.append("    switch (call) {")
        for number in range(len(program.calls)):
            function = "f" if what == "run" else f"limited{program.seed}"
            lines.append(f"    case {number}: {writer.call_of(layout, number, function)}; break;")
        lines.append("    }\n}")
    lines.append("extern const long progress_values[];")
    rounds = {n: v for n, _, v in program.sizes}.get(ROUNDS, (0,) * CALLS)
    lines += [f"extern const short last{r}[];" for r in regions]
    sizes, kinds_, elements = (_braced(map(str, numbers)) for numbers in (
        layout.sizes, kinds, (a.element_size for a in program.arrays)))
    lines.append(f"const struct nest nest = {{ {program.seed}, {len(program.arrays)}, {sizes}, {kinds_}, {elements}, "
                 f"{_braced(f'last{r}' for r in regions)}, {iterations}, {forms.counts}, {int(forms.stops)}, "
                 f"{forms.mark}, {forms.plugged}, progress_values, {_braced(map(str, rounds))}, run, limited, "
                 f"{code_size}, {forms.extreme} }};")
    return "\n".join(lines) + "\n"


def _braced(words: Iterable[str]) -> str:
    return f"{{ {', '.join(words)} }}"
