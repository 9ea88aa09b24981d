"""Which devices take part in a collective, in the notations that compiled programs use."""

import math
import re
from typing import NamedTuple

import numpy as np


class Groups(NamedTuple):
    """Rows of device numbers (positions in the flattened mesh); a pair each for a permute."""

    members: np.ndarray  # int [groups, size]

    @property
    def size(self) -> int:
        """Devices in a group; 1 where the text names none."""
        return self.members.shape[1] if self.members.size else 1

    def differ(self, part: int) -> bool:
        """Whether a group's members differ in number // part: lie in several parts of that size."""
        parts = self.members // part
        return bool((parts != parts[:, :1]).any()) if self.members.size else False


_MESH = re.compile(
    r"replica_groups=mesh\[([^\]]*)\](?:,? ?device_ids=(\(?\[[^)]*\)?))?\s*\{([^}]*)\}"
)
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_LISTS = re.compile(r"(?:replica_groups|source_target_pairs)=\{((?:\{[\d,]*\},?)*)\}")


def parse_groups(text: str) -> Groups:
    """The groups among an instruction's attributes.

    Three notations: lists `{{0,1},{2,3}}`; `[2,8]<=[4,4]T(1,0)`, numbers in order, reshaped,
    transposed, reshaped; and `mesh['a'=4,'b'=2] {'b'}`, groups along the named axes of a mesh.
    """
    if found := _MESH.search(text):
        return _from_mesh(found)
    if found := _IOTA.search(text):
        shape, sizes = _ints(found[1]), _ints(found[2])
        numbers = np.arange(math.prod(sizes)).reshape(sizes)
        if found[3]:
            numbers = numbers.transpose(_ints(found[3]))
        return Groups(numbers.reshape(-1, shape[-1]))
    if found := _LISTS.search(text):
        rows = [_ints(row) for row in re.findall(r"\{([\d,]+)\}", found[1])]
        if rows:
            return Groups(np.array(rows))
    return Groups(np.zeros((0, 0), int))


def _from_mesh(found: re.Match) -> Groups:
    axes = dict(re.findall(r"'(\w+)'=(\d+)", found[1]))
    sizes = [int(n) for n in axes.values()]
    numbers = np.arange(math.prod(sizes))
    order = re.search(r"<=\[([\d,]+)\](?:T\(([\d,]+)\))?", found[2] or "")
    if order:
        numbers = numbers.reshape(_ints(order[1]))
        if order[2]:
            numbers = numbers.transpose(_ints(order[2]))
    # An axis may be split: 'a':(2)4 is the part of size 4 of axis a that has 2 before it.
    dims, taken = [], []
    wanted = re.findall(r"'(\w+)'(?::\((\d+)\)(\d+))?", found[3])
    for name, size in zip(axes, sizes, strict=True):
        parts = sorted((int(b), int(p)) for n, b, p in wanted if n == name and b)
        if not parts:
            dims.append(size)
            taken.append(any(n == name for n, _, _ in wanted))
            continue
        before = 1
        for start, part in parts:
            if start > before:
                dims.append(start // before)
                taken.append(False)
            dims.append(part)
            taken.append(True)
            before = start * part
        if before < size:
            dims.append(size // before)
            taken.append(False)
    numbers = numbers.reshape(dims)
    axes_in = [i for i, t in enumerate(taken) if t]
    axes_out = [i for i, t in enumerate(taken) if not t]
    group = math.prod(dims[i] for i in axes_in)
    return Groups(numbers.transpose(axes_out + axes_in).reshape(-1, group))


def _ints(text: str) -> list[int]:
    return [int(n) for n in text.split(",") if n]
