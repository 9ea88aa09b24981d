"""Rows of local files and of the hub, each with the place it came from.

A row is (place, mapping of columns); a row that cannot be decoded is (place, reason as text). Rows
stream: a parquet file of millions of rows is never held in memory at once.
"""

import csv
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

Row = tuple[str, dict[str, Any] | str]


def stem(path: str) -> str:
    """The data set's name: the file's, without folder and extensions."""
    return pathlib.Path(str(path)).name.split(".")[0]


def by_extension(path: str) -> Iterator[Row]:
    """Rows of a .json, .jsonl, .csv or .parquet file; ValueError for any other name."""
    readers = {".json": json_rows, ".jsonl": jsonl_rows, ".csv": csv_rows, ".parquet": parquet_rows}
    suffix = pathlib.Path(str(path)).suffix.lower()
    if suffix not in readers:
        raise ValueError(f"path={path!r}: one of {', '.join(readers)}")
    return readers[suffix](path)


def jsonl_rows(path: str) -> Iterator[Row]:
    """One JSON object a line; blank lines are skipped. Places are path:line, from 1."""
    with open(_existing(path), encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            place = f"{path}:{number}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield place, f"not JSON: {error}"
                continue
            yield place, row if isinstance(row, dict) else f"{type(row).__name__}, not an object"


def json_rows(path: str) -> Iterator[Row]:
    """A JSON list of objects. Places are path:index, from 0."""
    try:
        rows = json.loads(pathlib.Path(_existing(path)).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"path={path!r}: not JSON: {error}. For an object a line use jsonl"
        ) from None
    if not isinstance(rows, list):
        raise ValueError(f"path={path!r}: holds a {type(rows).__name__}, not a list of objects")
    for number, row in enumerate(rows):
        place = f"{path}:{number}"
        yield place, row if isinstance(row, dict) else f"{type(row).__name__}, not an object"


def csv_rows(path: str) -> Iterator[Row]:
    """Comma-separated values with a header line. Places are path:line, from 1."""
    with open(_existing(path), encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        try:
            for row in reader:
                yield f"{path}:{reader.line_num}", row
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path}:{reader.line_num + 1}: not CSV in UTF-8: {error}") from None


def parquet_rows(path: str) -> Iterator[Row]:
    """Places are path:row, from 0."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(
            f"path={path!r}: reading parquet needs pyarrow: pip install 'disco-jax[parquet]'"
        ) from None
    try:
        number = 0
        with pyarrow.parquet.ParquetFile(_existing(path)) as file:
            for block in file.iter_batches(batch_size=1024):
                for row in block.to_pylist():
                    yield f"{path}:{number}", row
                    number += 1
    except pyarrow.ArrowException as error:
        raise ValueError(f"path={path!r}: not a parquet file: {error}") from None


def write_parquet(path: str, rows: list[dict[str, Any]]) -> None:
    """Writes rows of the same columns; ValueError where pyarrow is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(
            f"path={path!r}: writing parquet needs pyarrow: pip install 'disco-jax[parquet]'"
        ) from None
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def hub(repo: str, split: str, config: str) -> Iterator[Row]:
    """Rows of a hub data set. Places are repo:row, from 0."""
    try:
        import datasets
    except ImportError:
        raise ValueError(
            f"hub(repo={repo!r}) needs the package datasets: pip install 'disco-jax[hub]', "
            "or download the file and name it with parquet(path=...)"
        ) from None
    try:
        rows = datasets.load_dataset(repo, config or None, split=split)
    except Exception as error:  # connection, permission, name: of many classes
        reason = str(error).strip().split("\n")[0]
        raise ValueError(
            f"hub(repo={repo!r}, split={split!r}): {reason}. Without a connection, download the "
            "file elsewhere and name it with parquet(path=...) or jsonl(path=...)"
        ) from error
    for number, row in enumerate(rows):
        yield f"{repo}:{number}", row


def _existing(path: str) -> str:
    if not isinstance(path, str):
        raise ValueError(f"path={path!r}: a file name in quotes")
    full = os.path.expanduser(path)
    if not os.path.isfile(full):
        raise ValueError(f"path={path!r}: no such file (looked in {os.getcwd()})")
    return full
