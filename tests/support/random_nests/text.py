"""The text in C: the nest's function, and the function that calls it."""

from __future__ import annotations

from memopt.ir.linear import Linear
from tests.support.random_nests.program import Access, Array, Assign, Expr, If, Layout, Loop, Node, Program, SetLocal

HEADER = """#include <math.h>
#include <stdint.h>
#include <stddef.h>
"""


def linear(value: Linear) -> str:
    parts = [f"{c} * {s}" if abs(c) != 1 else s if c == 1 else f"-{s}" for s, c in value.terms]
    if value.constant or not parts:
        parts.append(str(value.constant))
    return " + ".join(parts).replace("+ -", "- ")


class Writer:
    """C text for the nest of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def access(self, access: Access) -> str:
        array = self.program.array(access.array)
        member = f".m{access.field}" if array.fields else ""
        if array.form != "flat":
            return f"{self.name(array)}{''.join(f'[{linear(s)}]' for s in access.subscripts)}{member}"
        parts = []
        for subscript, stride in zip(access.subscripts, array.strides, strict=True):
            text = linear(subscript)
            if stride != 1:
                text = f"({text}) * {stride}"
            parts.append(text)
        return f"{array.name}[{' + '.join(parts).replace('+ -', '- ')}]{member}"

    def name(self, array: Array) -> str:
        return f"g{self.program.seed}_{array.name}" if array.form == "global" else array.name

    def expression(self, e: Expr) -> str:
        args = [self.expression(a) for a in e.args]
        real = e.type.real
        suffix = "f" if e.type.name == "float" else ""
        match e.op:
            case "ref":
                assert e.access is not None
                return self.access(e.access)
            case "local" | "scalar" | "const":
                return e.text
            case "text":
                return e.text.format(*args)
            case "index":
                return f"({e.type.name})({linear(e.linear)})"
            case "cast":
                return f"({e.type.name}){args[0]}"
            case "min" | "max":
                return f"({args[0]} {'<' if e.op == 'min' else '>'} {args[1]} ? {args[0]} : {args[1]})"
            case "select":
                return f"({args[0]} {e.text} {args[1]} ? {args[2]} : {args[3]})"
            case "abs":
                if real:
                    return f"fabs{suffix}({args[0]})"
                return f"({args[0]} < 0 ? {self.wrap('-', e, args)} : {args[0]})"
            case "sqrt":
                return f"sqrt{suffix}({args[0]})"
            case "neg":
                return f"(-({args[0]}))" if real else self.wrap("-", e, args)
            case ">>":
                return f"({e.type.name})({args[0]} >> {e.text})"
            case "<<":
                return f"({e.type.name})(({e.type.unsigned}){args[0]} << {e.text})"
            case _ if real:
                return f"({args[0]} {e.op} {args[1]})"
            case _:
                return self.wrap(e.op, e, args)

    @staticmethod
    def wrap(operator: str, e: Expr, args: list[str]) -> str:
        kind = e.type.unsigned
        if len(args) == 1:
            return f"({e.type.name})({operator}({kind}){args[0]})"
        return f"({e.type.name})(({kind}){args[0]} {operator} ({kind}){args[1]})"

    def nodes(self, body: tuple[Node, ...], depth: int) -> list[str]:
        pad = "    " * depth
        lines: list[str] = []
        for node in body:
            match node:
                case Loop():
                    lines += [pad + self.head(node) + " {", *self.nodes(node.body, depth + 1), pad + "}"]
                case If(value, relation, then, otherwise, test):
                    one, two = map(self.expression, test) if test else (linear(value), "0")
                    lines += [f"{pad}if ({one} {relation} {two}) {{", *self.nodes(then, depth + 1), pad + "}"]
                    if otherwise:
                        lines += [pad + "else {", *self.nodes(otherwise, depth + 1), pad + "}"]
                case Assign(target, value, accumulate):
                    place = self.access(target)
                    if accumulate:
                        array = self.program.array(target.array)
                        value = Expr(accumulate, array.type, (Expr("const", array.type, text=place), value))
                    lines.append(f"{pad}{place} = {self.expression(value)};")
                case SetLocal(name, value, accumulate):
                    if accumulate:
                        value = Expr(accumulate, value.type, (Expr("local", value.type, text=name), value))
                    lines.append(f"{pad}{name} = {self.expression(value)};")
        return lines

    @staticmethod
    def head(loop: Loop) -> str:
        upper = linear(loop.upper)
        if loop.upper2 is not None:
            other = linear(loop.upper2)
            upper = f"({upper} < {other} ? {upper} : {other})"
        if loop.step < 0:
            step = f"{loop.var}--" if loop.step == -1 else f"{loop.var} -= {-loop.step}"
            return f"for ({loop.type} {loop.var} = {upper} - 1; {loop.var} >= {linear(loop.lower)}; {step})"
        step = f"{loop.var}++" if loop.step == 1 else f"{loop.var} += {loop.step}"
        return f"for ({loop.type} {loop.var} = {linear(loop.lower)}; {loop.var} < {upper}; {step})"

    def parameters(self) -> str:
        result = []
        for array in self.program.arrays:
            keyword = "restrict " if array.restrict else ""
            if array.form == "flat":
                result.append(f"{array.c_type} *{keyword}{array.name}")
            elif array.form == "rows":
                result.append(f"{array.c_type} (*{keyword}{array.name}){_columns(array)}"
                              if array.columns else f"{array.c_type} *{keyword}{array.name}")
        result += [f"{kind} {name}" for name, kind, _ in self.program.sizes]
        result += [f"{kind.name} {name}" for name, kind, _ in self.program.scalars]
        return ", ".join(result) or "void"

    def returned(self) -> str:
        return next((t.name for n, t in self.program.locals if n == self.program.result), "void")

    def declarations(self, sizes: tuple[int, ...]) -> list[str]:
        """What both files need: structures, global arrays, the prototype."""
        lines = []
        for array, size in zip(self.program.arrays, sizes, strict=True):
            if array.fields:
                members = " ".join(f"{array.type.name} m{n};" for n in range(array.fields))
                lines.append(f"struct {array.name}_of {{ {members} }};")
            if array.form == "global":
                row = array.element_size
                for columns in array.columns:
                    row *= columns
                rows = -(-size // row)
                lines.append(f"{array.c_type} {self.name(array)}[{rows}]{_columns(array)};")
        return lines

    def nest(self, sizes: tuple[int, ...]) -> str:
        """The function, for the file that is compiled as the program wants it."""
        seed = self.program.seed
        scoped = self.scoped(self.declarations(sizes))
        attribute = "__attribute__((noinline, noclone))" if self.program.build.compiler == "gcc" else (
            "__attribute__((noinline))")
        locals_ = [f"    {t.name} {n} = 0;" for n, t in self.program.locals]
        result = [f"    return {self.program.result};"] if self.program.result else []
        lines = [*scoped, f"{attribute} {self.returned()} f{seed}({self.scope(self.parameters())})", "{", *locals_,
                 *(self.scope(line) for line in self.nodes(self.program.body, 1)), *result, "}"]
        return "\n".join(lines)

    def scoped(self, lines: list[str]) -> list[str]:
        return [self.scope(line) for line in lines]

    def scope(self, text: str) -> str:
        """Structures of different programs in one file have different names."""
        for array in self.program.arrays:
            text = text.replace(f"struct {array.name}_of", f"struct s{self.program.seed}_{array.name}")
        return text

    def caller(self, layout: Layout) -> str:
        """``run_SEED(call, regions)`` and the description of the regions, for the file of calls."""
        program, seed = self.program, self.program.seed
        lines = self.scoped([line if "struct" in line and line.endswith("};") else f"extern {line}"
                             for line in self.declarations(layout.sizes)])
        lines.append(f"extern {self.returned()} f{seed}({self.scope(self.parameters())});")
        lines.append(f"static void run_{seed}(int call, unsigned char **region)\n{{\n    switch (call) {{")
        for number, call in enumerate(program.calls):
            arguments = []
            for array in program.arrays:
                if array.form != "global":
                    region, offset = layout.pointers[number][array.name]
                    arguments.append(f"(void *)(region[{region}] + {offset}L)")
            arguments += [str(values[number]) for _, _, values in program.sizes]
            arguments += [text for _, _, text in program.scalars]
            text = f"f{seed}({', '.join(arguments)})"
            if program.result:
                text = f"{{ {self.returned()} r = {text}; leave(&r, sizeof r); }}"
            else:
                text += "; leave(0, 0);"
            lines.append(f"    case {number}: enter({call.mxcsr:#x}); {text} break;")
        lines.append("    }\n}")
        kinds = ", ".join({"double": "8", "float": "4"}.get(a.type.name, "1") for a in program.arrays)
        places = ", ".join(self.name(a) if a.form == "global" else "0" for a in program.arrays)
        fresh = sum(int(c.fresh) << n for n, c in enumerate(program.calls))
        lines.append(f"static const struct program p{seed} = {{ run_{seed}, {seed}, {len(program.calls)}, "
                     f"{len(program.arrays)}, {{ {', '.join(map(str, layout.sizes))} }}, {{ {kinds} }}, "
                     f"{{ {places} }}, {fresh}, {int(program.specials)} }};")
        return "\n".join(lines)


def _columns(array: Array) -> str:
    return "".join(f"[{c}]" for c in array.columns)
