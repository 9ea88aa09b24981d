"""The import table: who may import whom, and one door per outside package."""

import ast
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "disco_jax"

COMMANDS = {"train", "sample", "serve", "evaluate", "grade", "doctor", "compile_check"}
DOOR_OF_A_COMMAND = "objective/check.py"  # its path is what users type; what it runs is in golden/
# What the commands share; like them, it may import every room.
SHARED = {
    "answers", "command", "datasets", "folder", "heap", "policy", "processes", "replay",
    "samplers", "settings", "setup", "workdir",
}  # fmt: skip
# A room may import the rooms named here, and itself.
ROOMS = {
    "types": set(),
    "calls": set(),
    "objective": {"types", "calls"},
    "golden": {"types", "objective"},
    "reward": {"calls"},
    "model": {"types"},
    "data": {"types", "calls"},
    "rollout": {"types", "model"},
    "update": {"types", "model", "objective"},
    "eval": {"types", "data", "rollout", "reward"},
    "pods": {"types", "model", "rollout", "update"},
    "report": {"types"},
}
# An outside package comes in only through these places (path prefixes below disco_jax/).
DOORS = {
    "flax": {"model/"},
    "safetensors": set(),  # model/tensor_files.py streams the format; only tests use it
    "gguf": {"model/gguf.py"},
    "optax": {"update/"},
    "orbax": {"update/checkpoint.py"},
    "sympy": {"reward/"},
    "mpmath": {"reward/"},
    "pylatexenc": {"reward/"},
    "transformers": {"data/"},
    "sentencepiece": {"data/"},
    "pyarrow": {"data/"},
    "datasets": {"data/"},
    "matplotlib": {"report/"},
    "jinja2": {"report/"},
    "tensorboardX": {"report/"},
    "tqdm": {"report/"},
    "jetstream": {"rollout/jetstream"},  # jetstream.py and its _driver, _server and _client
    "grpc": {"rollout/jetstream"},
    "absl": {"command"},
    "ml_collections": {"command"},
    "torch": set(),
    "tensorflow": set(),
}
OBJECTIVE_OUTSIDE = {"jax"}  # the mathematics needs nothing else
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(path: pathlib.Path) -> set[str]:
    """Dotted names imported anywhere in the file, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def room(path: pathlib.Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_table(path):
    here = room(path)
    where = str(path.relative_to(PACKAGE))
    for name in imports(path):
        top, *rest = name.split(".")
        if where == DOOR_OF_A_COMMAND:
            continue
        if top == "disco_jax" and rest and rest[0] != "__version__" and here in ROOMS:
            assert rest[0] in ROOMS[here] | {here}, f"{where} may not import {name}"
        assert top not in ("configs", "experiments", "tests"), f"{where} imports {name}"
        if top in DOORS:
            allowed = DOORS[top]
            assert here in allowed or any(where.startswith(p) for p in allowed), (
                f"{where} imports {name}; its door is {sorted(allowed)}"
            )
        if here == "objective":
            stdlib = top in sys.stdlib_module_names
            assert stdlib or top in OBJECTIVE_OUTSIDE | {"disco_jax"}, f"{where} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_happens_on_import(path):
    """No environment variable is set and no library flag is changed at module level."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if ast.unparse(node.value.func).endswith(".defvjp"):
                continue  # the second half of a function's definition
            pytest.fail(f"{path.name}:{node.lineno} calls {ast.unparse(node.value.func)} on import")
        if isinstance(node, ast.Assign) and "environ" in ast.unparse(node.targets[0]):
            pytest.fail(f"{path.name}:{node.lineno} sets an environment variable on import")


def test_every_file_belongs_to_a_room():
    for path in FILES:
        assert room(path) in set(ROOMS) | COMMANDS | SHARED | {"__init__"}, path


def test_configs_import_only_what_they_may():
    for path in sorted((ROOT / "configs").glob("*.py")):
        for name in imports(path):
            top = name.split(".")[0]
            allowed = {"configs", "ml_collections"} | set(sys.stdlib_module_names)
            ours = ("disco_jax.objective.methods", "disco_jax.model.dims")
            assert top in allowed or name.startswith(ours), f"{path.name} imports {name}"
