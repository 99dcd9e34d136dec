"""Frozen dataclasses that are quick to make: ``from memopt.ir.frozen import dataclass`` in place of the standard one.

Example: an improvement imports three hundred classes with ``@dataclass(frozen=True, slots=True)``. The standard library
writes the text of six methods for each and compiles it, which was 40 % of the time of all imports. Here only
``__init__`` is compiled; the other methods are closures over the names of the fields.

In: a class. Out: the class as ``dataclasses.dataclass`` makes it: the same fields, slots, comparison, hashes and texts.
``fields``, ``replace``, ``asdict``, copies, pickles and patterns of ``match`` see no difference. Decorators with other
arguments than ``frozen``, ``slots`` and ``eq``, and classes that are not frozen, are left to ``dataclasses``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # to the type checker it is the standard one
    from dataclasses import dataclass as dataclass
else:
    import dataclasses
    from operator import attrgetter
    from reprlib import recursive_repr

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True, **more):
        """``dataclasses.dataclass``, made faster where ``frozen`` is True and nothing but ``slots`` and ``eq`` is
        given."""
        def make(plain):
            if not frozen or more:
                return dataclasses.dataclass(plain, frozen=frozen, slots=slots, eq=eq, **more)
            return _frozen(plain, slots, eq)

        return make if cls is None else make(cls)

    def _frozen(cls, slots, eq):
        own = set(cls.__dict__) - ({"__hash__"} if cls.__hash__ is None else set())  # __eq__ alone sets that to None
        cls.__doc__ = cls.__doc__ or cls.__name__  # else dataclasses works out the signature for it, which is slow
        made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots)
        made.__dataclass_params__.frozen, made.__dataclass_params__.eq = True, eq  # for classes derived from it
        names = made.__match_args__
        methods = {"__init__": _init(made), "__repr__": _text(names), **_refusals(made, names)}
        if slots:
            methods |= _pickled(names)
        if eq:
            methods |= _comparison(names)
        for name in methods.keys() - own:
            method = methods[name]
            method.__name__, method.__qualname__ = name, f"{made.__qualname__}.{name}"
            setattr(made, name, method)
        return made

    def _init(cls):
        """An ``__init__`` that compiles the real one at the first call: an improvement makes no value of every other
        class."""
        def first(self, *values, **named):
            cls.__init__ = _compiled(cls)
            cls.__init__(self, *values, **named)

        return first

    def _compiled(cls):
        known = {"__set": object.__setattr__, "__absent": object()}
        parameters, body = [], []
        for name, field in cls.__dataclass_fields__.items():
            default, value = "", name
            if field.default_factory is not dataclasses.MISSING:
                known[f"__new_{name}"] = field.default_factory
                default, value = "=__absent", f"__new_{name}() if {name} is __absent else {name}"
            elif field.default is not dataclasses.MISSING:
                known[f"__default_{name}"] = field.default
                default = f"=__default_{name}"
            parameters.append(name + default)
            body.append(f"__set(self, {name!r}, {value})")
        if hasattr(cls, "__post_init__"):
            body.append("self.__post_init__()")
        exec(f"def __init__({', '.join(('self', *parameters))}): {'; '.join(body) or 'pass'}", known)
        known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
        return known["__init__"]

    def _values(names):
        """A function: the values of these fields of an object, as a tuple."""
        if len(names) > 1:
            return attrgetter(*names)
        one = attrgetter(*names) if names else None
        return (lambda value: (one(value),)) if names else (lambda _: ())

    def _comparison(names):
        values = _values(names)

        def equal(self, other):
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        def hashed(self):
            return hash(values(self))

        return {"__eq__": equal, "__hash__": hashed}

    def _text(names):
        @recursive_repr()
        def text(self):
            return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

        return text

    def _pickled(names):
        def state_of(self):
            return [getattr(self, name) for name in names]

        def restore(self, state):
            for name, value in zip(names, state, strict=True):
                object.__setattr__(self, name, value)

        return {"__getstate__": state_of, "__setstate__": restore}

    def _refusals(cls, names):
        def refuse(self, name, what):
            if type(self) is cls or name in names:
                raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")

        def assign(self, name, value):
            refuse(self, name, "assign to")
            super(cls, self).__setattr__(name, value)

        def delete(self, name):
            refuse(self, name, "delete")
            super(cls, self).__delattr__(name)

        return {"__setattr__": assign, "__delattr__": delete}
