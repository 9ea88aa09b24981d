"""What the command lines share: flags, one-line errors, exit codes.

Exit codes: 0 finished; 2 the command or the configuration is wrong (nothing was computed);
75 stopped by a signal after saving, run the same command to continue; 1 anything else.
"""

import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

OK, WRONG, STOPPED = 0, 2, 75


class UserError(Exception):
    """Something the user can mend; the text says what, where, the value, and the mend."""


class Command(NamedTuple):
    """A parsed command line."""

    config: Any  # locked ConfigDict, overrides applied
    base: Any  # the configuration file's own values
    workdir: pathlib.Path


def launch(main: Callable[[Command], int], argv: list[str] | None = None) -> None:
    """Parses `--config=FILE[:argument] --workdir=DIR [--config.key=value ...]`, runs, exits.

    Args:
      main: returns the exit code.
      argv: the command line, program name first; `sys.argv` by default.
    """
    argv = sys.argv if argv is None else argv
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # quiet C++ start-up chatter of XLA
    try:
        code = main(_parse(argv))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        code = WRONG
    except KeyboardInterrupt:
        code = 130
    sys.stdout.flush()
    sys.exit(code)


def _parse(argv: list[str]) -> Command:
    from absl import flags
    from ml_collections import config_flags

    def define() -> tuple[flags.FlagValues, flags.FlagHolder]:
        values = flags.FlagValues()
        text = "Configuration file, for instance configs/arithmetic.py"
        return values, config_flags.DEFINE_config_file("config", None, text, flag_values=values)

    values, config = define()
    workdir = flags.DEFINE_string(
        "workdir", None, "Folder of the run; the same folder continues it", flag_values=values
    )
    sys.path.insert(0, os.getcwd())  # configuration files import one another as configs.base
    try:
        left = values(argv)
        if len(left) > 1:
            raise UserError(f"unexpected argument {left[1]!r}; flags look like --config.key=value")
        if config.value is None or workdir.value is None:
            raise UserError("both are needed: --config=configs/NAME.py --workdir=DIR")
        base_values, base = define()
        base_values([argv[0], f"--config={config_flags.get_config_filename(values['config'])}"])
    except (flags.Error, AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        if any("--help" in a for a in argv):
            raise UserError(values.get_help()) from None
        raise UserError(_one_line(error)) from error
    finally:
        sys.path.pop(0)
    return Command(config.value, base.value, pathlib.Path(workdir.value))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
