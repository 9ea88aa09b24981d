"""Runs a benchmark program in turns: `python turns.py PROGRAM ARGUMENTS...`.

Before each timed repeat the program writes a line `@turn` and waits for a line on its standard
input, so that several programs, all started and warm, can take turns on one machine; after it, it
writes `@took SECONDS`. The program's folder holds a module (`measure`, or `common`) whose
`Timer.run(function, repeats)` times repeats.
"""

import importlib
import os
import pathlib
import runpy
import sys

TURN, TOOK = "@turn", "@took"


def say(text: str) -> None:
    sys.stdout.flush()
    os.write(1, f"\n{text}\n".encode())


def wait_for_turn() -> None:
    """Returns when the starter says so; ends the program when the starter is gone."""
    say(TURN)
    if not sys.stdin.readline():
        raise SystemExit("turns: nobody gives turns any more")


def main() -> None:
    program = pathlib.Path(sys.argv[1])
    sys.argv = sys.argv[1:]
    sys.path[0] = str(program.parent)
    own = (program.parent / "measure.py").exists()
    timer = importlib.import_module("measure" if own else "common").Timer
    run = timer.run

    def in_turns(self, function, repeats):
        found = None
        for _ in range(repeats):
            wait_for_turn()
            found = run(self, function, 1)
            say(f"{TOOK} {self.rows[-1][0]:.3f}")
        return found

    timer.run = in_turns
    runpy.run_path(str(program), run_name="__main__")


if __name__ == "__main__":
    main()
