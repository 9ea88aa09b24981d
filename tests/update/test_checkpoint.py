"""Damage of every kind, and another mesh: the newest intact state comes back exactly."""

import gc
import pathlib
import shutil

import jax
import numpy as np
import optax
import pytest

from disco_jax.model import mesh as meshes
from disco_jax.update.checkpoint import Checkpoints
from disco_jax.update.step import TrainState

# Reads that fail leave tensorstore futures whose event loop is gone when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def collected():
    yield
    gc.collect()


def make_state(tiny, scale=1.0, shape=(1, 1, 1)):
    _, params = tiny
    mesh = meshes.make_mesh(shape, jax.devices()[: np.prod(shape)])
    params = jax.tree.map(lambda x: x * scale, params)
    opt_state = optax.adam(1e-3).init(params)
    tree = TrainState(params, opt_state)
    return jax.device_put(tree, meshes.shardings(mesh, tree))


@pytest.fixture
def said():
    return []


@pytest.fixture
def folder(tiny, tmp_path, said):
    """Checkpoints of steps 1, 2 and 3, of which two are kept."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2, say=said.append)
    for step in (1, 2, 3):
        checkpoints.save(step, make_state(tiny, float(step)))
    checkpoints.close()
    return tmp_path / "checkpoints"


def restore(folder, tiny, said, shape=(1, 1, 1)):
    checkpoints = Checkpoints(folder, keep=2, say=said.append)
    try:
        return checkpoints.restore(make_state(tiny, 0.0, shape))
    finally:
        checkpoints.close()


def data_files(step: pathlib.Path) -> list[pathlib.Path]:
    """The arrays' files; some hold superseded versions, which nothing reads."""
    return [p for p in step.rglob("*") if p.is_file() and p.parent.name == "d"]


def flip(step: pathlib.Path) -> None:
    for path in data_files(step):
        content = bytearray(path.read_bytes())
        for i in range(0, len(content), len(content) // 16 + 1):
            content[i] ^= 1
        path.write_bytes(content)


def truncate(step: pathlib.Path) -> None:
    for path in data_files(step):
        path.write_bytes(path.read_bytes()[:100])


def delete(step: pathlib.Path) -> None:
    for path in data_files(step):
        path.unlink()


def empty(step: pathlib.Path) -> None:
    shutil.rmtree(step)
    step.mkdir()


DAMAGES = {
    "flipped bits": flip,
    "truncated files": truncate,
    "missing files": delete,
    "an empty folder": empty,
    "no checksums": lambda step: shutil.rmtree(step / "checksums"),
    "no state": lambda step: shutil.rmtree(step / "state"),
}


def test_the_newest_state_comes_back_exactly_on_any_mesh(folder, tiny, said):
    for shape in ((1, 1, 1), (2, 2, 2)):
        step, state = restore(folder, tiny, said, shape)
        assert step == 3
        jax.tree.map(np.testing.assert_array_equal, state, make_state(tiny, 3.0))
        wanted = make_state(tiny, 0.0, shape)
        jax.tree.map(
            lambda a, b: a.sharding == b.sharding or pytest.fail("sharding"), state, wanted
        )
    assert sorted(p.name for p in folder.iterdir() if p.name.isdigit()) == ["2", "3"]
    assert not said


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_set_aside_for_the_one_before(folder, tiny, said, damage):
    DAMAGES[damage](folder / "3")
    step, state = restore(folder, tiny, said)
    assert step == 2
    jax.tree.map(np.testing.assert_array_equal, state, make_state(tiny, 2.0))
    assert (folder / "damaged-3").is_dir() and not (folder / "3").exists()
    assert len(said) == 1 and said[0].startswith("checkpoint 3 is not used: ")


def test_a_run_without_any_readable_checkpoint_does_not_start_anew(folder, tiny, said):
    for step in ("2", "3"):
        flip(folder / step)
    for _ in range(2):  # the second attempt is refused as the first
        with pytest.raises(ValueError, match="no checkpoint can be read"):
            restore(folder, tiny, said)
    assert sorted(p.name for p in folder.iterdir()) == ["2", "3"]


def test_a_run_whose_checkpoints_were_set_aside_does_not_start_anew(folder, tiny, said):
    for step in ("2", "3"):
        empty(folder / step)
    for _ in range(2):
        with pytest.raises(ValueError, match="damaged-2, damaged-3"):
            restore(folder, tiny, said)


def test_an_empty_folder_has_no_checkpoint(tmp_path, tiny, said):
    assert restore(tmp_path / "new", tiny, said) is None
