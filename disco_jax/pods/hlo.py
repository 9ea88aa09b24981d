"""Reading a compiled program: what each collective moves, how often, and how large arrays are.

The text of an optimised HLO module is a list of computations, each a list of instructions
`%name = type opcode(operands), attributes`. A loop's body is written once; how often it runs is
read from its condition, so that every collective is counted as often as it is executed.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from disco_jax.pods.groups import Groups, parse_groups

BYTES = {
    "pred": 1, "s4": 0.5, "u4": 0.5, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "s32": 4, "u32": 4,
    "s64": 8, "u64": 8, "bf16": 2, "f16": 2, "f32": 4, "f64": 8, "c64": 8, "c128": 16,
}  # fmt: skip
KINDS = (
    "all-gather",
    "reduce-scatter",
    "all-reduce",
    "all-to-all",
    "collective-permute",
)

_SHAPE = re.compile(r"\b([a-z]+\d*(?:e\d+m\d+\w*)?)\[([\d,]*)\]")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\(")
_CALLED = re.compile(r"(?:calls|body|condition|to_apply|called_computations)=\{?%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_KNOWN_TRIPS = re.compile(r'known_trip_count\D{1,8}"?(\d+)')


class Shape(NamedTuple):
    """One array of a type."""

    dtype: str
    sizes: tuple[int, ...]

    @property
    def bytes(self) -> float:
        count = 1
        for size in self.sizes:
            count *= size
        return count * BYTES.get(self.dtype, 1)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.sizes))}]"


class Instruction(NamedTuple):
    """One line: `arguments` is all that follows the opening bracket."""

    name: str
    type: str
    opcode: str
    arguments: str
    root: bool

    @property
    def shapes(self) -> list[Shape]:
        return shapes(self.type)


Scopes = list[tuple[str, Instruction | None]]


class Collective(NamedTuple):
    """A collective at one place of the program.

    Attributes:
      kind: one of `KINDS`.
      payload: the arrays it moves: whole, as they are after a gather and before a scatter.
      groups: which devices take part together.
      times: how often it runs in one call of the program.
      loops: trip counts of the loops around it, outermost first; None where one is not known.
      source: the operation it came from, as jax names it.
      computation: the one it stands in.
      disjoint: an all-reduce of parts that do not overlap: a gather, as the TPU compiler writes it
        for small arrays. Adding zeros is exact in any dtype.
    """

    kind: str
    payload: list[Shape]
    groups: Groups
    times: int
    loops: tuple[int | None, ...]
    source: str
    computation: str
    disjoint: bool = False

    @property
    def adds_up(self) -> bool:
        """Whether it is (a step of) a reduction, also where the compiler made rings of permutes."""
        ring = self.kind == "collective-permute" and "_body_rs" in self.computation
        return ring or (self.kind in ("all-reduce", "reduce-scatter") and not self.disjoint)

    @property
    def bytes(self) -> float:
        """Of the payload, once."""
        return sum(shape.bytes for shape in self.payload)

    @property
    def wire_bytes(self) -> float:
        """Sent by each device in one call, by the ring algorithm, which is optimal."""
        share = 1.0 if self.kind == "collective-permute" else 1 - 1 / self.groups.size
        return self.bytes * share * (2 if self.kind == "all-reduce" else 1) * self.times


def shapes(text: str) -> list[Shape]:
    """The arrays of a type, in order."""
    return [
        Shape(dtype, tuple(int(n) for n in sizes.split(",") if n))
        for dtype, sizes in _SHAPE.findall(text)
        if dtype in BYTES or dtype.startswith("f8")
    ]


class Module:
    """A compiled module's computations.

    Args:
      text: `compiled.as_text()`.
      unknown_trips: how often a loop runs whose condition is no count (a decoding loop that may
        end early).
    """

    def __init__(self, text: str, unknown_trips: int = 1):
        self.unknown_trips = unknown_trips
        self.computations: dict[str, list[Instruction]] = {}
        self.entry = ""
        current: list[Instruction] = []
        for line in text.splitlines():
            if found := _INSTRUCTION.match(line):
                root, name, kind, opcode = found.groups()
                current.append(Instruction(name, kind, opcode, line[found.end() :], bool(root)))
            elif found := _HEAD.match(line):
                current = self.computations.setdefault(found[2], [])
                if found[1]:
                    self.entry = found[2]

    def walk(self) -> Iterator[tuple[str, Instruction, tuple[int | None, ...]]]:
        """(computation, instruction, trip counts of the loops around it), from the entry down."""
        yield from self._walk(self.entry, ())

    def _walk(self, computation: str, loops: tuple[int | None, ...]):
        for instruction in self.computations.get(computation, ()):
            yield computation, instruction, loops
            inner = loops
            if instruction.opcode == "while":
                inner = (*loops, self.trips(instruction))
            for called in _called(instruction):
                yield from self._walk(called, inner)

    def trips(self, loop: Instruction) -> int | None:
        """How often a loop's body runs: its condition compares a counter with a constant."""
        if known := _KNOWN_TRIPS.search(loop.arguments):
            return int(known[1])
        condition = re.search(r"condition=%?([\w.\-]+)", loop.arguments)
        body = self.computations.get(condition[1], []) if condition else []
        constants = {
            i.name: int(i.arguments.split(")")[0])
            for i in body
            if i.opcode == "constant" and re.match(r"-?\d+\)", i.arguments)
        }
        roots = [i for i in body if i.root]
        if len(constants) != 1 or not roots or "parameter" not in {i.opcode for i in body}:
            return None
        if roots[0].opcode == "compare" and "direction=LT" in roots[0].arguments:
            return next(iter(constants.values()))
        if roots[0].opcode == "fusion":  # the comparison alone, wrapped
            return next(iter(constants.values()))
        return None

    def collectives(self) -> list[Collective]:
        """All that the program executes, in the order of the text."""
        found = []
        for computation, instruction, loops in self.walk():
            kind = instruction.opcode.removesuffix("-start")
            if kind not in KINDS:
                continue
            times = 1
            for trips in loops:
                times *= self.unknown_trips if trips is None else trips
            groups = parse_groups(instruction.arguments)
            if kind == "all-reduce" and "all-reduce-scatter" in computation:
                kind = "reduce-scatter"  # the TPU compiler's name of a fused one
                payload = instruction.shapes
            else:
                payload = _payload(kind, instruction, groups.size)
            source = re.search(r'op_name="([^"]*)"', instruction.arguments)
            source = source[1] if source else ""
            disjoint = self._disjoint(computation, instruction)
            found.append(
                Collective(kind, payload, groups, times, loops, source, computation, disjoint)
            )
        return found

    def _disjoint(self, computation: str, reduction: Instruction) -> bool:
        """Whether every operand is zeros with this device's part written into them."""
        operands = _operands(reduction)
        return bool(operands) and all(self._part_of_zeros(computation, name) for name in operands)

    def _part_of_zeros(self, computation: str, name: str) -> bool:
        where, part = self._definition([(computation, None)], name)
        if part is None or part.opcode != "dynamic-update-slice":
            return False
        where, base = self._definition(where, _operands(part)[0])
        if base is not None and base.opcode == "broadcast":
            where, base = self._definition(where, _operands(base)[0])
        return base is not None and base.opcode == "constant" and base.arguments.startswith("0)")

    def _definition(self, where: Scopes, name: str) -> tuple[Scopes, Instruction | None]:
        """What computes a value, through fusions and changes of shape; None where a loop does.

        Args:
          where: the computation of `name` last; each with the fusion that it is the body of.
        """
        computation, fusion = where[-1]
        found = next((i for i in self.computations[computation] if i.name == name), None)
        if found is None:
            return where, None
        if found.opcode in ("bitcast", "copy", "reshape"):
            return self._definition(where, _operands(found)[0])
        if found.opcode == "fusion":
            (body,) = _called(found)
            root = next(i for i in self.computations[body] if i.root)
            return self._definition([*where, (body, found)], root.name)
        if found.opcode == "parameter" and fusion is not None:
            number = int(found.arguments.split(")")[0])
            return self._definition(where[:-1], _operands(fusion)[number])
        return where, found


def _operands(instruction: Instruction) -> list[str]:
    return re.findall(r"%([\w.\-]+)", instruction.arguments.split(")")[0])


def _called(instruction: Instruction) -> list[str]:
    called = _CALLED.findall(instruction.arguments)
    if branches := _BRANCHES.search(instruction.arguments):
        called += [name.strip().lstrip("%") for name in branches[1].split(",")]
    return called


def _payload(kind: str, instruction: Instruction, group: int) -> list[Shape]:
    arrays = instruction.shapes
    if instruction.opcode.endswith("-start") and kind != "all-reduce":
        # (operands, results, ...): the results; a permute adds two words of its own
        arrays = [shape for shape in arrays if shape.sizes]
        arrays = arrays[len(arrays) // 2 :]
    if kind == "reduce-scatter":
        arrays = [Shape(s.dtype, (group, *s.sizes)) for s in arrays]
    return arrays
