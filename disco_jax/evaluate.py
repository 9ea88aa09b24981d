"""Evaluates a policy: the paper's six benchmarks, held-out questions, or any question source.

    python -m disco_jax.evaluate --config=configs/arithmetic.py --workdir=runs/demo
    python -m disco_jax.evaluate --config=configs/base.py --workdir=runs/baseline \\
        --model=/models/DeepSeek-R1-Distill-Qwen-1.5B --benchmarks=/data/benchmarks

Every response is saved as it finishes; the same command continues where it was killed, to the same
results. `config.eval` says how responses are sampled. They and `results.json` are left in
WORKDIR/evaluations/NAME.
"""

import dataclasses
import functools
import pathlib
from typing import Any

from disco_jax import datasets, policy, samplers, settings, setup, workdir
from disco_jax.answers import Evaluator
from disco_jax.command import OK, Command, Option, UserError, launch
from disco_jax.data import files
from disco_jax.data.sets import QuestionSet
from disco_jax.eval import benchmarks, paper, responses
from disco_jax.eval.evaluate import Evaluation, paired, regrade, saved
from disco_jax.eval.pass_at_k import average
from disco_jax.folder import lock, write_json
from disco_jax.policy import Policy
from disco_jax.report.counter import Counter
from disco_jax.report.progress import Progress
from disco_jax.setup import Model

OPTIONS = (
    Option("model", "", "a policy's folder, or an embedded one; by default that of the workdir"),
    Option("checkpoint", "", "final | best | latest: which of the workdir's policies"),
    Option("benchmarks", "", "folder of the six files; --config.eval.benchmarks names some"),
    Option("questions", "", "a question source, such as \"jsonl(path='mine.jsonl')\""),
    Option("limit", 0, "only the first so many questions of every set"),
    Option("name", "", "of the folder in WORKDIR/evaluations, by default after the policy"),
    Option("regrade", False, "grade the saved responses anew, and sample nothing"),
    Option("compare", "", "a workdir, or a folder of its evaluations, to compare with"),
    Option("table", "1.5b", "rows of the paper to print beside: " + " | ".join(paper.TABLES)),
    Option("parquet", False, "leave the responses as parquet too"),
)


def main(command: Command) -> int:
    """Evaluates, prints and leaves the results; returns the exit code."""
    config, options = command.config, command.options
    _check(command)
    progress = Progress(1)
    mesh = setup.make_mesh(config)
    chosen = policy.find_policy(command, mesh, progress)
    folder = command.workdir / workdir.EVALUATIONS / _checked(options["name"] or chosen.name)
    sets, left_out = question_sets(command, chosen.model, progress)
    with setup.make_grader(config) as grader, lock(folder, "another evaluation runs there"):
        evaluator = samplers.make_evaluator(config, chosen.model, mesh, grader)
        try:
            if options["regrade"]:
                found = _regraded(sets, folder, grader, config.reward.policy, progress)
            else:
                found = _sampled(sets, folder, evaluator, chosen)
            results = _results(found, left_out, folder, chosen)
            if options["compare"]:
                results["compared"] = _compared(found, folder, options["compare"])
        except ValueError as error:
            raise UserError(str(error)) from error
        write_json(folder / "results.json", results)
        if options["parquet"]:
            _write_parquet(found, folder)
    print("\n\n".join(_report(results, found, command)))
    print(f"\nresponses and results.json: {folder}")
    return OK


def _check(command: Command) -> None:
    """Checks the flags, enters them into the configuration, and checks that."""
    options = command.options
    for name, allowed in (("checkpoint", ("", *policy.KINDS)), ("table", tuple(paper.TABLES))):
        if options[name] not in allowed:
            raise UserError(
                f"--{name}={options[name]!r}: one of {' | '.join(filter(None, allowed))}"
            )
    if options["model"] and options["checkpoint"]:
        raise UserError("--model and --checkpoint both name a policy; give one of them")
    if options["limit"] < 0:
        raise UserError(f"--limit={options['limit']}: at least 1, or 0 for all questions")
    if options["name"]:
        _checked(options["name"])
    config = command.config
    if options["benchmarks"]:
        config.data.benchmarks = options["benchmarks"]
    unnamed = config.data.benchmarks and not config.eval.benchmarks
    if unnamed and (options["benchmarks"] or not options["questions"]):
        config.eval.benchmarks = "all"
    settings.check(config, train=False)


def _checked(name: str) -> str:
    """The name of an evaluation; raises UserError where its folder would be something else's."""
    if name in (".", "..") or "/" in name or name.startswith(workdir.STEP):
        raise UserError(
            f"--name={name!r}: give the plain name of a folder in WORKDIR/{workdir.EVALUATIONS}."
            f" Names in {workdir.STEP}* are a training run's own, which removes them when it"
            " makes these steps again"
        )
    return name


def question_sets(
    command: Command, model: Model, progress: Progress
) -> tuple[dict[str, QuestionSet], dict[str, int]]:
    """What is evaluated, by name, and how many questions of each do not fit the configuration.

    The benchmarks where their folder is known, and `--questions`; else `config.data.heldout`.
    """
    config, options = command.config, command.options
    found = datasets.benchmark_questions(config, config.eval.benchmarks)
    if options["questions"]:
        found["questions"] = datasets.read(options["questions"], "--questions")
    if not found:
        found["heldout"] = datasets.read(config.data.heldout, "config.data.heldout")
    if limit := options["limit"]:
        found = {f"{name}-first{limit}": some[:limit] for name, some in found.items()}
    sets = {
        name: datasets.question_set(config, some, name, model.tokenizer, progress)
        for name, some in found.items()
    }
    progress.say(datasets.first_prompt(next(iter(sets.values())), model.tokenizer))
    return sets, {name: len(some) - len(sets[name]) for name, some in found.items()}


def _sampled(
    sets: dict[str, QuestionSet], folder: pathlib.Path, evaluator: Evaluator, policy: Policy
) -> dict[str, Evaluation]:
    load = functools.cache(lambda: evaluator.load_params(policy.load()))
    found = {}
    for name, some in sets.items():
        with Counter(name) as counter:
            path = folder / f"{name}.jsonl"
            found[name] = evaluator(load, some, policy.weights, path, counter)
    return found


def _regraded(
    sets: dict[str, QuestionSet], folder: pathlib.Path, grader: Any, policy: str, progress: Progress
) -> dict[str, Evaluation]:
    for name, some in sets.items():
        path = folder / f"{name}.jsonl"
        gained, lost = regrade(path, some.questions, grader.submit, settings={"policy": policy})
        progress.say(f"{name}: {gained} verdicts from wrong to right, {lost} from right to wrong")
    return {name: saved(folder / f"{name}.jsonl", s.questions) for name, s in sets.items()}


def _results(
    found: dict[str, Evaluation], left_out: dict[str, int], folder: pathlib.Path, chosen: Policy
) -> dict[str, Any]:
    """What `results.json` holds; the average only of the six benchmarks, whole."""
    first = next(iter(found))
    results = {
        "policy": chosen.name,
        "model": str(chosen.model.folder),
        "settings": responses.read(folder / f"{first}.jsonl")[0]["settings"],
        "sets": {
            name: some.summary() | {"left_out": left_out[name]} for name, some in found.items()
        },
    }
    if set(benchmarks.BENCHMARKS) <= found.keys():
        shares = [found[name].correct_QK.mean(1) for name in benchmarks.BENCHMARKS]
        numbers = zip(("pass@1", "pass@1_low", "pass@1_high"), average(shares), strict=True)
        results["average"] = dict(numbers)
    return results


def _compared(found: dict[str, Evaluation], folder: pathlib.Path, other: str) -> dict[str, Any]:
    """pass@1 of this evaluation minus the other's, question by question, for every set."""
    path = pathlib.Path(other).expanduser()
    inside = path / workdir.EVALUATIONS / folder.name
    path = inside if inside.is_dir() else path
    if not any((path / f"{name}.jsonl").is_file() for name in found):
        there = sorted(str(p) for p in (path / workdir.EVALUATIONS).glob("*") if p.is_dir())
        raise UserError(
            f"--compare={other!r}: no responses to {', '.join(found)} there."
            + (f" Name one of {', '.join(there)}" if there else " Evaluate that workdir first")
        )
    comparisons = {}
    for name, mine in found.items():
        theirs = saved(path / f"{name}.jsonl", mine.questions)
        comparisons[name] = dataclasses.asdict(paired(theirs, mine))
    return {"with": str(path), "sets": comparisons}


def _write_parquet(found: dict[str, Evaluation], folder: pathlib.Path) -> None:
    for name in found:
        rows = [r._asdict() for r in responses.read(folder / f"{name}.jsonl")[1].values()]
        try:
            files.write_parquet(str(folder / f"{name}.parquet"), rows)
        except ValueError as error:
            raise UserError(f"--parquet: {error}") from error


def _report(results: dict[str, Any], found: dict[str, Evaluation], command: Command) -> list[str]:
    """The paragraphs that are printed."""
    config, options = command.config, command.options
    parts = [benchmarks.figures(results["sets"])]
    columns = {name.partition("-first")[0]: some.correct_QK for name, some in found.items()}
    tests = {name: c for name, c in columns.items() if name in benchmarks.BENCHMARKS}
    if tests:
        trained = "-" if options["model"] else _thousands(config.rollout.max_tokens)
        label = results["policy"] + (f" (first {options['limit']})" if options["limit"] else "")
        lengths = f"{trained} / {_thousands(config.eval.max_tokens)}"
        parts.append(benchmarks.table(tests, label, lengths, beside=options["table"]))
    notes = [benchmarks.notes(list(tests))]
    notes += [
        f"{name}: {numbers['left_out']} questions are left out (see above), so this is not the"
        " score of the whole set"
        for name, numbers in results["sets"].items()
        if numbers["left_out"]
    ]
    parts.append("\n".join(filter(None, notes)))
    for name, one in results.get("compared", {"sets": {}})["sets"].items():
        parts.append(
            f"{name}: pass@1 {100 * one['difference']:+.1f} points"
            f" [{100 * one['low']:+.1f}, {100 * one['high']:+.1f}] over"
            f" {results['compared']['with']}, p = {one['p_value']:.4f}"
        )
    return [part for part in parts if part]


def _thousands(tokens: int) -> str:
    return f"{tokens // 1024}k" if tokens % 1024 == 0 else str(tokens)


if __name__ == "__main__":
    launch(main, options=OPTIONS)
