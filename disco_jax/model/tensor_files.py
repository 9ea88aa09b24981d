"""The safetensors format, streamed: any slice of a tensor in, one tensor at a time out.

A file is the length of its header (8 bytes, little-endian), the header (JSON, name -> dtype, shape
and the range of its bytes), and the tensors' bytes one behind the other. The package of that name
maps whole files into memory to read, and writes a file from all of its tensors at once; here a
process holds the slice that it asked for and nothing else.
"""

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import jax.numpy as jnp
import numpy as np

# What weights are stored in. Other formats (8-bit floats, integers) are those of quantised models.
DTYPES = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(jnp.bfloat16),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
HEADER_BYTES = 100_000_000  # the format's own limit
BLOCK_BYTES = 32 << 20  # read at once where columns are picked out of rows


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file: what it is, and where."""

    path: pathlib.Path
    code: str  # of its dtype; a key of DTYPES where it can be read
    shape: tuple[int, ...]
    offset: int  # of its first byte in the file
    nbytes: int

    @property
    def dtype(self) -> np.dtype | None:
        return DTYPES.get(self.code)

    def read(self, index: tuple[slice, ...]) -> np.ndarray:
        """The part of the tensor at `index`, one slice with step 1 per axis.

        Reads the rows (first axis) that are asked for, in blocks where other axes are cut too.

        Raises:
          ValueError: the file ends inside the tensor.
        """
        rows, *others = (slice(*s.indices(n)) for s, n in zip(index, self.shape, strict=True))
        part_shape = tuple(s.stop - s.start for s in (rows, *others))
        part = np.empty(part_shape, self.dtype)
        row_bytes = self.nbytes // self.shape[0]
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset + rows.start * row_bytes)
            if part_shape[1:] == self.shape[1:]:
                self._fill(file, part)
                return part
            block = np.empty((max(1, BLOCK_BYTES // row_bytes), *self.shape[1:]), self.dtype)
            for first in range(0, len(part), len(block)):
                block = block[: len(part) - first]
                self._fill(file, block)
                part[first : first + len(block)] = block[(slice(None), *others)]
        return part

    def _fill(self, file: BinaryIO, array: np.ndarray) -> None:
        view = memoryview(array.reshape(-1).view(np.uint8))
        while view:
            count = file.readinto(view)
            if not count:
                raise ValueError(f"{self.path} ends inside a tensor; a truncated download?")
            view = view[count:]


def read_header(path: str | os.PathLike) -> dict[str, StoredTensor]:
    """The tensors of a file, by name; none of their bytes is read.

    Raises:
      ValueError: not a safetensors file, or one that contradicts itself.
    """
    path = pathlib.Path(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= length <= min(size - 8, HEADER_BYTES):
            raise _not_safetensors(path, "its header does not fit into it")
        text = file.read(length)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        return {name: _entry(path, entry, 8 + length, size) for name, entry in header.items()}
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise _not_safetensors(path, f"{type(error).__name__}: {error}") from error


def _entry(path: pathlib.Path, entry: Mapping[str, Any], start: int, size: int) -> StoredTensor:
    code, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
        raise ValueError(f"shape {shape} at bytes {begin} to {end}")
    if not begin <= end <= size - start:
        raise ValueError(f"a tensor ends at byte {start + end} of {size}")
    if code in DTYPES and math.prod(shape) * DTYPES[code].itemsize != end - begin:
        raise ValueError(f"{end - begin} bytes for {code} of shape {shape}")
    return StoredTensor(path, code, shape, start + begin, end - begin)


def _not_safetensors(path: pathlib.Path, why: str) -> ValueError:
    return ValueError(
        f"{path} is not a safetensors file ({why}); a truncated download, or the pointer of a large"
        " file that was not fetched?"
    )


class TensorWriter:
    """Writes a file tensor by tensor; a context manager, which flushes to the disk at its end.

    Args:
      path: a file, which is replaced.
      tensors: name -> (shape, dtype) of everything that `write` will be given, in that order.
    """

    def __init__(self, path: pathlib.Path, tensors: Mapping[str, tuple[tuple[int, ...], np.dtype]]):
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name, (shape, dtype) in tensors.items():
            begin, end = end, end + math.prod(shape) * dtype.itemsize
            header[name] = {"dtype": CODES[dtype], "shape": shape, "data_offsets": (begin, end)}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)  # the tensors start at a multiple of 8
        self._left = list(tensors.values())
        self._file = open(path, "wb")  # noqa: SIM115
        self._file.write(len(text).to_bytes(8, "little") + text)

    def __enter__(self) -> "TensorWriter":
        return self

    def write(self, tensor: np.ndarray) -> None:
        """Raises ValueError where the tensor is not the next one that was announced."""
        expected = self._left.pop(0) if self._left else None
        if expected != (tensor.shape, tensor.dtype):
            raise ValueError(f"{tensor.dtype}{tensor.shape} written where {expected} was announced")
        self._file.write(memoryview(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)))

    def __exit__(self, kind: type | None, *_: object) -> None:
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        if kind is None and self._left:
            raise ValueError(f"{self._file.name} lacks its last {len(self._left)} tensors")
