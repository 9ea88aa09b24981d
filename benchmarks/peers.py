"""Our benchmarks beside other systems', interleaved: `python benchmarks/peers.py --peers DIR CASE`.

A case is one workload that several programs measure: ours in this folder, the peers' in the folder
`--peers`, each run by the python of its own virtual environment in `--venvs`. All are started and
warmed one after another; then they take turns, one repeat each, so that a machine that drifts
drifts for all. Programs that time themselves from end to end (`step`) take turns as processes.

Prints a table: every program's rate, and how many times faster than it ours is (the median over
rounds of the ratio within a round, and its range). One JSON line per program and benchmark goes to
`--out`. A peer without an environment, or that fails, is named and left out.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import Any, NamedTuple

from turns import TOOK, TURN

HERE = pathlib.Path(__file__).parent
OURS = "disco_jax"


class Case(NamedTuple):
    """One workload: our program with its arguments, and the peers' with their environments."""

    ours: str
    peers: dict[str, tuple[str, str]]


HF, VLLM, TUNIX, TRL = "transformers", "vllm", "tunix", "trl"
CASES = {
    "rollout-tiny": Case(
        "rollout.py --model tiny",
        {
            VLLM: ("vvllm", "rollout_vllm.py --model tiny"),
            TUNIX: ("vtunix", "rollout_tunix.py --model tiny"),
            HF: ("vtorch", "rollout_hf.py --model tiny"),
        },
    ),
    "rollout-tiny-ragged": Case(
        "rollout.py --model tiny --ragged 64",
        {
            VLLM: ("vvllm", "rollout_vllm.py --model tiny --ragged 1"),
            HF: ("vtorch", "rollout_hf.py --model tiny --ragged 1"),
        },
    ),
    "rollout-smol": Case(
        "rollout.py --model smol",
        {
            VLLM: ("vvllm", "rollout_vllm.py --model smol"),
            TUNIX: ("vtunix", "rollout_tunix.py --model smol"),
            HF: ("vtorch", "rollout_hf.py --model smol"),
        },
    ),
    "rollout-smol-bf16": Case(
        "rollout.py --model smol --dtype bfloat16",
        {
            VLLM: ("vvllm", "rollout_vllm.py --model smol --dtype bfloat16"),
            HF: ("vtorch", "rollout_hf.py --model smol --dtype bfloat16"),
        },
    ),
    "update-tiny": Case(
        "update.py --model tiny",
        {
            TRL: ("vtorch", "update_trl.py --model tiny --micro 16"),
            TUNIX: ("vtunix", "update_tunix.py --model tiny"),
        },
    ),
    "update-smol": Case(
        "update.py --model smol",
        {
            TRL: ("vtorch", "update_trl.py --model smol"),
            TUNIX: ("vtunix", "update_tunix.py --model smol"),
        },
    ),
    "update-smol-bf16": Case(
        "update.py --model smol --dtype bfloat16",
        {TRL: ("vtorch", "update_trl.py --model smol --dtype bfloat16")},
    ),
    "step-tiny": Case(
        "step.py",
        {TRL: ("vtorch", "step_trl.py"), TUNIX: ("vtunix", "step_tunix.py")},
    ),
}
STEPS = 3  # of a process of the case `step`; its first is left out


class Program:
    """One running benchmark program: its turns and the JSON lines it prints."""

    def __init__(self, name: str, command: list[str], folder: pathlib.Path, env: dict[str, str]):
        self.name = name
        self.rows: list[dict[str, Any]] = []
        self.took = 0.0  # seconds of the last repeat
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"HF_HUB_OFFLINE": "1"} | env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.waiting = self._until_turn()

    def turn(self) -> None:
        """Lets it run one repeat, to its next wait or its end."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.waiting = self._until_turn()

    def _until_turn(self) -> bool:
        for line in self._process.stdout:
            if line.strip() == TURN:
                return True
            if line.startswith(TOOK):
                self.took = float(line.split()[1])
            if line.startswith('{"'):  # TRL also prints Python's form of a dict
                self.rows.append(json.loads(line))
        self.close()
        return False

    def close(self) -> None:
        self._process.kill()
        code = self._process.wait()
        if not self.rows:
            self._errors.seek(0)
            text = self._errors.read().decode(errors="replace")[-1500:]
            print(f"peers: {self.name} failed (exit code {code}):\n{text}", file=sys.stderr)


def commands(args: argparse.Namespace) -> dict[str, tuple[list[str], pathlib.Path]]:
    """Program name -> (command, its folder), ours first; peers without environment are named."""
    case = CASES[args.case]
    found = {OURS: (sys.executable, HERE, f"{case.ours} {args.ours}")}
    for peer, (venv, text) in case.peers.items():
        python = args.venvs / venv / "bin" / "python"
        if args.only and peer not in args.only.split(","):
            continue
        if not python.exists():
            print(f"peers: {peer} left out, no {python}", file=sys.stderr)
            continue
        found[peer] = (str(python), args.peers, text)
    return {
        name: ([python, str(HERE / "turns.py"), *_paths(folder, text)], folder)
        for name, (python, folder, text) in found.items()
    }


def environment(args: argparse.Namespace, name: str) -> dict[str, str]:
    """Variables given for this program: `--env vllm:LD_PRELOAD=libtcmalloc.so`."""
    given = [text.partition(":")[2] for text in args.env if text.partition(":")[0] == name]
    return dict(text.split("=", 1) for text in given)


def _paths(folder: pathlib.Path, text: str) -> list[str]:
    program, *rest = text.split()
    return [str(folder / program), *rest]


def in_turns(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The lines of all programs; each repeat of one is followed by a repeat of the next."""
    running = []
    try:
        for name, (command, folder) in commands(args).items():
            command += ["--repeats", str(args.repeats)]
            program = Program(name, command, folder, environment(args, name))
            print(f"peers: {name} is warm", file=sys.stderr)
            running.append(program)
        while waiting := [program for program in running if program.waiting]:
            for program in waiting:
                program.turn()
            took = ", ".join(f"{program.name} {program.took:.2f} s" for program in waiting)
            print(f"peers: {took}", file=sys.stderr)
    finally:
        for program in running:
            if program.waiting:
                program.close()
    return [row | {"peer": program.name} for program in running for row in program.rows]


def by_process(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The lines of all programs, each run anew in every round; steps after a warm-up step."""
    steps: dict[str, list[float]] = {}
    lines: dict[str, dict[str, Any]] = {}
    rounds = -(-args.repeats // (STEPS - 1))
    for _ in range(rounds):
        for name, (command, folder) in commands(args).items():
            command += ["--steps", str(STEPS)]
            program = Program(name, command, folder, environment(args, name))
            while program.waiting:
                program.turn()
            for row in program.rows:
                steps.setdefault(name, []).extend(row["rl_step_s"][1:])
                lines[name] = row
    return [row | {"peer": name, "wall_s": steps[name]} for name, row in lines.items()]


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with `ours_times` [median, least, most]: how many times faster ours was."""
    ours = {row["bench"]: row for row in rows if row["peer"] == OURS}
    for row in rows:
        if (own := ours.get(row["bench"])) is None:
            continue
        if row.get("new_tokens") != own.get("new_tokens"):
            raise ValueError(
                f"{row['peer']} made {row.get('new_tokens')} tokens, ours {own.get('new_tokens')}: "
                "not the same work; mend the case's arguments"
            )
        ratios = [b / a for a, b in zip(own["wall_s"], row["wall_s"], strict=False)]
        row["ours_times"] = [
            round(x, 2) for x in (statistics.median(ratios), min(ratios), max(ratios))
        ]
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Rates, ratios, memory and the share of the machine that others took."""
    text = ["benchmark    program       median     best   ours is (range)        peak MB  others"]
    for row in sorted(rows, key=lambda row: row["bench"]):
        median, least, most = row.get("ours_times", (0, 0, 0))
        wall = row["wall_s"]
        rates = (row.get("tokens_per_s_median"), row.get("tokens_per_s_best"))
        if rates[0] is None:
            rates = (statistics.median(wall), min(wall))  # seconds a step
        others = statistics.median(row.get("others_share", [0.0]))
        text.append(
            f"{row['bench']:12s} {row['peer']:13s}{rates[0]:8.1f} {rates[1]:8.1f}   "
            f"{median:.2f} ({least:.2f}-{most:.2f})".ljust(70)
            + f"{row['peak_rss_mb']:8d}  {others:5.2f}"
        )
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--peers", type=pathlib.Path, required=True, help="folder of programs")
    parser.add_argument("--venvs", type=pathlib.Path, help="default: beside the peers' folder")
    parser.add_argument("--only", default="", help="peers, separated by commas; default: all")
    parser.add_argument("--ours", default="", help="further arguments of our program")
    parser.add_argument("--env", action="append", default=[], help="PEER:NAME=VALUE, repeatable")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, help="file the JSON lines are added to")
    args = parser.parse_args()
    args.peers = args.peers.resolve()
    args.venvs = (args.venvs or args.peers.parent).absolute()
    run = by_process if args.case.startswith("step") else in_turns
    rows = compared(run(args))
    print(f"{args.case}, {args.repeats} repeats, {os.cpu_count()} cores")
    print(table(rows))
    if args.out:
        with args.out.open("a") as file:
            file.writelines(json.dumps({"case": args.case} | row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
