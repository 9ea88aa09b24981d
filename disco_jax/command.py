"""What the command lines share: flags, one-line errors, exit codes.

Exit codes: 0 finished; 2 the command or the configuration is wrong (nothing was computed);
75 stopped by SIGTERM or SIGINT (ctrl-C) with what was finished saved, run the same command to
continue; 1 anything else. A second signal ends the process at once, as if nobody handled it.
"""

import contextlib
import errno
import os
import pathlib
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from disco_jax import heap

OK, FAILED, WRONG, STOPPED = 0, 1, 2, 75


_USAGE = """usage: python -m disco_jax.COMMAND --config=FILE[:ARGUMENT] --workdir=DIR [overrides]

  --config=configs/arithmetic.py:grpo   a configuration file, and what its get_config takes
  --workdir=runs/first                  the folder of the run; the same folder continues it
  --config.steps=100                    any key of the file; configs/base.py lists and explains them
"""


class Option(NamedTuple):
    """A flag of one command's own; its type is that of the default."""

    name: str
    default: str | int | bool
    help: str


class UserError(Exception):
    """Something the user can mend; the text says what, where, the value, and the mend."""


class Command(NamedTuple):
    """A parsed command line."""

    config: Any  # locked ConfigDict, overrides applied
    base: Any  # the configuration file's own values
    workdir: pathlib.Path
    options: Mapping[str, Any]  # of `Option`s, by name


def launch(
    main: Callable[[Command], int],
    argv: list[str] | None = None,
    options: Sequence[Option] = (),
    workdir: bool = True,
) -> None:
    """Parses `--config=FILE[:argument] --workdir=DIR [--config.key=value ...]`, runs, exits.

    Args:
      main: returns the exit code.
      argv: the command line, program name first; `sys.argv` by default.
      options: further flags.
      workdir: False for a command that keeps nothing; its `Command.workdir` is the current one.
    """
    if argv is not None:
        sys.argv = list(argv)  # ml_collections finds the overrides of a configuration there
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # quiet C++ start-up chatter of XLA
    heap.keep_freed_memory()  # before a backend starts its threads
    with stoppable():
        try:
            code = _run(main, _parse(sys.argv, options, workdir))
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            code = WRONG
    sys.exit(code)


def _run(main: Callable[[Command], int], command: Command) -> int:
    try:
        code = main(command)
        sys.stdout.flush()
    except OSError as error:  # a vanished file, a full disk: the text says it all, or nearly
        mend = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and not error.filename:
            mend = f". Make room for --workdir={command.workdir}, and run the same command again"
        print(f"error: {error}{mend}", file=sys.stderr)
        return FAILED
    return code


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and SIGINT end what is inside, wherever it is, with a line and the code `STOPPED`.

    For work whose records are whole at every moment. What has to finish a step first replaces the
    handlers by its own (`processes.StopSignal`).
    """

    def stop(number: int, frame: Any) -> None:
        for each in before:
            signal.signal(each, signal.SIG_DFL)  # the second one ends the process at once
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {n: signal.getsignal(n) for n in numbers}
    before = {n: old for n, old in before.items() if old != signal.SIG_IGN}  # as nohup has it
    try:
        for number in before:
            signal.signal(number, stop)
        yield
    except KeyboardInterrupt:
        print("stopped; what is finished is kept, run the same command again", file=sys.stderr)
        sys.exit(STOPPED)
    finally:
        for number, old in before.items():
            signal.signal(number, old or signal.SIG_DFL)


def _parse(argv: list[str], options: Sequence[Option], needs_workdir: bool) -> Command:
    from absl import flags
    from ml_collections import config_flags

    def define() -> tuple[flags.FlagValues, flags.FlagHolder]:
        values = flags.FlagValues()
        text = "Configuration file, for instance configs/arithmetic.py"
        return values, config_flags.DEFINE_config_file("config", None, text, flag_values=values)

    if {"--help", "-h"} & set(argv):
        print(_USAGE + "".join(f"  --{o.name:<12} {o.help}\n" for o in options), end="")
        sys.exit(OK)
    values, config = define()
    default = None if needs_workdir else "."
    workdir = flags.DEFINE_string(
        "workdir", default, "Folder of the run; the same folder continues it", flag_values=values
    )
    for option in options:
        _define(option, values)
    sys.path.insert(0, os.getcwd())  # configuration files import one another as configs.base
    try:
        left = values(argv)
        if len(left) > 1:
            raise UserError(f"unexpected argument {left[1]!r}; flags look like --config.key=value")
        if values["config"].value is None or not workdir.value:
            if not needs_workdir:
                raise UserError("needed: --config=configs/NAME.py")
            raise UserError("both are needed: --config=configs/NAME.py --workdir=DIR")
        base_values, base = define()
        base_values([argv[0], f"--config={config_flags.get_config_filename(values['config'])}"])
        chosen = {option.name: values[option.name].value for option in options}
        folder = pathlib.Path(os.path.expanduser(workdir.value))  # no shell does it after a `=`
        command = Command(config.value, base.value, folder, chosen)
        command.config.lock()  # touches the configuration: one that failed to load raises here
        return command
    except (flags.Error, AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise UserError(_one_line(error)) from error
    finally:
        sys.path.pop(0)


def _define(option: Option, values: Any) -> None:
    from absl import flags

    kinds = {
        bool: flags.DEFINE_boolean,
        int: flags.DEFINE_integer,
        str: flags.DEFINE_string,
    }
    define = kinds[type(option.default)]
    define(option.name, option.default, option.help, flag_values=values)


def _one_line(error: Exception) -> str:
    """The last line of a text that quotes a traceback (a configuration that raises), or all."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback") for line in lines) or "Traceback" in lines[0]:
        return lines[-1]
    return " ".join(lines)
