"""Folders that one process at a time writes to, and JSON files that appear whole."""

import fcntl
import json
import os
import pathlib
from typing import Any, TextIO

from disco_jax.command import UserError


def lock(folder: pathlib.Path, busy: str) -> TextIO:
    """Makes the folder and holds its lock while the returned file is open.

    Raises:
      UserError: another process holds it (`busy` says what that does), or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("w")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UserError(f"--workdir={folder}: {busy}; wait for it, or use another folder") from None
    except OSError as error:
        raise UserError(f"--workdir={folder}: {error}") from error
    return file


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """The file's object, empty where there is no file; raises UserError where it is damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if not isinstance(found, dict):
            raise ValueError("not an object")
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON ({error}); use another --workdir") from None
    return found


def write_json(path: pathlib.Path, value: Any) -> None:
    """The file appears whole or not at all."""
    tmp = path.with_name(path.name + ".tmp")
    tmp.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n")
    os.replace(tmp, path)
