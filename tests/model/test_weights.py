"""Checkpoints both ways: exact, sharded, complete or refused, one tensor at a time."""

import dataclasses
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from disco_jax.model import export, tensor_files, weights
from disco_jax.model import mesh as meshes

DATA = pathlib.Path(__file__).parent / "data"
CASES = {"llama3": "bfloat16", "qwen2": "float32", "qwen2_tied": "float16", "qwen3": "bfloat16"}


def raw_bytes(folder):
    """Name -> (dtype, shape, bytes) of every tensor, as the files hold them."""
    found = {}
    for path in folder.glob("*.safetensors"):
        for name, stored in tensor_files.read_header(path).items():
            with path.open("rb") as file:
                file.seek(stored.offset)
                found[name] = stored.code, stored.shape, file.read(stored.nbytes)
    return found


def shardings(shape, dims):
    mesh = meshes.make_mesh(shape, jax.devices()[: np.prod(shape)])
    return meshes.shardings(mesh, weights.shapes(dims))


def save_raw(folder, tensors, name="model.safetensors"):
    folder.mkdir(exist_ok=True)
    safetensors.numpy.save_file(tensors, folder / name)


@pytest.fixture(scope="module")
def qwen3():
    dims = weights.read_dims(DATA / "qwen3")
    return dims, weights.load(DATA / "qwen3", dims)


@pytest.mark.parametrize(
    ("case", "dtype"), [(case, "source") for case in CASES] + [("llama3", "stated")]
)
def test_untouched_weights_leave_as_they_came_to_the_byte(case, dtype, tmp_path):
    """In the file's dtype, through float32 masters, and out again."""
    dims = weights.read_dims(DATA / case)
    params = weights.load(DATA / case, dims)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(np.float32)}
    dtype = CASES[case] if dtype == "stated" else dtype
    weights.save(tmp_path / "out", dims, params, DATA / case, dtype=dtype)
    assert raw_bytes(tmp_path / "out") == raw_bytes(DATA / case)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["torch_dtype"] == CASES[case]
    assert config["eos_token_id"] == json.loads((DATA / case / "config.json").read_text()).get(
        "eos_token_id"
    )
    assert weights.read_dims(tmp_path / "out") == dims


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_every_finite_16_bit_number_survives(dtype, tmp_path):
    """Subnormal ones too, which a conversion in hardware may flush to 0."""
    bits = np.arange(65536, dtype=np.uint16).view(dtype)
    values = np.where(np.isfinite(bits.astype(np.float32)), bits, np.zeros((), dtype))
    dims = dataclasses.replace(weights.read_dims(DATA / "qwen3"), vocab=1024, tied=True)
    tensors = safetensors.numpy.load_file(DATA / "qwen3" / "model.safetensors")
    del tensors["lm_head.weight"]
    tensors["model.embed_tokens.weight"] = values.reshape(1024, 64)
    save_raw(tmp_path / "a", tensors)
    params = weights.load(tmp_path / "a", dims)
    np.testing.assert_array_equal(params["embed"].reshape(-1), values.astype(np.float32))
    weights.save(tmp_path / "b", dims, params, tmp_path / "a", dtype="source")
    assert raw_bytes(tmp_path / "b") == raw_bytes(tmp_path / "a")


@pytest.mark.parametrize(
    ("case", "shape"), [("llama3", (2, 2, 2)), ("llama3", (1, 4, 1)), ("qwen2_tied", (1, 1, 8))]
)
def test_shards_are_those_of_the_whole_and_come_back_together(case, shape, tmp_path):
    dims = weights.read_dims(DATA / case)
    table = shardings(shape, dims)
    whole, parts = weights.load(DATA / case, dims), weights.load(DATA / case, dims, table)
    jax.tree.map(np.testing.assert_array_equal, whole, parts)
    assert all(
        leaf.sharding.is_equivalent_to(sharding, leaf.ndim)
        for leaf, sharding in zip(jax.tree.leaves(parts), jax.tree.leaves(table), strict=True)
    )
    weights.save(tmp_path / "out", dims, parts, DATA / case, dtype="source")
    assert raw_bytes(tmp_path / "out") == raw_bytes(DATA / case)


def test_each_byte_is_read_once_however_many_devices_hold_it(monkeypatch):
    dims = weights.read_dims(DATA / "qwen3")
    read, plain = [], tensor_files.StoredTensor.read
    monkeypatch.setattr(
        tensor_files.StoredTensor,
        "read",
        lambda self, index: read.append(plain(self, index)) or read[-1],
    )
    weights.load(DATA / "qwen3", dims, shardings((4, 2, 1), dims))
    stored = tensor_files.read_header(DATA / "qwen3" / "model.safetensors").values()
    assert sum(part.nbytes for part in read) == sum(tensor.nbytes for tensor in stored)


def test_parameters_may_be_kept_in_another_dtype(qwen3):
    dims, params = qwen3
    half = weights.load(DATA / "qwen3", dims, dtype=jnp.bfloat16)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b.astype(a.dtype)), params, half)
    assert half["layers"]["q"].dtype == jnp.bfloat16


def test_progress_counts_the_bytes_of_every_tensor(qwen3, tmp_path):
    dims, params = qwen3
    seen = []
    weights.load(DATA / "qwen3", dims, on_tensor=lambda *args: seen.append(args))
    stored = tensor_files.read_header(DATA / "qwen3" / "model.safetensors")
    assert {name for name, *_ in seen} == set(stored) and len(seen) == len(stored)
    total = sum(tensor.nbytes for tensor in stored.values())
    assert seen[-1][1:] == (total, total)
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})
    out = []
    weights.save(tmp_path / "out", dims, params, on_tensor=lambda *args: out.append(args))
    assert [name for name, *_ in out] == [name for name, *_ in seen]
    assert out[-1][1:] == (2 * total, 2 * total)


def test_files_are_split_with_an_index_that_others_read(qwen3, tmp_path):
    dims, params = qwen3
    weights.save(tmp_path / "out", dims, params, dtype="bfloat16", file_bytes=60_000)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in (tmp_path / "out").glob("*.safetensors"))
    assert files == [f"model-{i:05d}-of-00004.safetensors" for i in (1, 2, 3, 4)]
    tensors = {}
    for file in files:
        held = safetensors.numpy.load_file(tmp_path / "out" / file)
        assert {index["weight_map"][name] for name in held} == {file}
        assert sum(tensor.nbytes for tensor in held.values()) <= 60_000
        tensors |= held
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in tensors.values())
    theirs = safetensors.numpy.load_file(DATA / "qwen3" / "model.safetensors")
    assert tensors.keys() == theirs.keys()
    for name, tensor in theirs.items():
        np.testing.assert_array_equal(tensors[name], tensor)
    # A checkpoint of another kind beside the files of the index is none of its tensors.
    save_raw(tmp_path / "out", {"else": np.zeros(3, np.float32)}, name="consolidated.safetensors")
    jax.tree.map(np.testing.assert_array_equal, weights.load(tmp_path / "out", dims), params)


def test_several_files_need_no_index(qwen3, tmp_path):
    dims, params = qwen3
    tensors = safetensors.numpy.load_file(DATA / "qwen3" / "model.safetensors")
    names = sorted(tensors)
    save_raw(tmp_path / "m", {n: tensors[n] for n in names[:9]}, name="a.safetensors")
    save_raw(tmp_path / "m", {n: tensors[n] for n in names[9:]}, name="b.safetensors")
    jax.tree.map(np.testing.assert_array_equal, weights.load(tmp_path / "m", dims), params)
    save_raw(tmp_path / "m", {n: tensors[n] for n in names[8:]}, name="b.safetensors")
    with pytest.raises(ValueError, match=f"{names[8]}, as .*a.safetensors does"):
        weights.load(tmp_path / "m", dims)


def test_every_wrong_tensor_is_listed(qwen3, tmp_path):
    dims, _ = qwen3
    tensors = safetensors.numpy.load_file(DATA / "qwen3" / "model.safetensors")
    del tensors["model.layers.0.self_attn.q_norm.weight"], tensors["lm_head.weight"]
    tensors["model.layers.1.mlp.up_proj.weight"] = np.zeros((64, 96), np.float32)
    tensors["model.layers.0.mlp.up_proj.weight"] = np.zeros((96, 64), np.int8)
    tensors["model.layers.2.mlp.up_proj.weight"] = np.zeros((96, 64), np.float32)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(12, np.float32)
    save_raw(tmp_path / "m", tensors)
    with pytest.raises(ValueError) as error:
        weights.load(tmp_path / "m", dims)
    assert str(error.value).splitlines()[1:] == [
        "  lm_head.weight: missing",
        "  model.layers.0.self_attn.q_norm.weight: missing",
        "  model.layers.0.mlp.up_proj.weight: dtype I8 is not one of F32, F16, BF16",
        "  model.layers.1.mlp.up_proj.weight: shape (64, 96), config.json implies (96, 64)",
        "  model.layers.2.mlp.up_proj.weight: unexpected",
    ]


def test_a_tied_head_in_the_file_is_the_embedding(qwen3):
    dims, _ = qwen3
    tied = dataclasses.replace(dims, tied=True)
    assert "head" not in weights.load(DATA / "qwen3", tied)


HEADERS = {
    "empty": b"",
    "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n",
    "longer than the file": (1 << 40).to_bytes(8, "little") + b"{}",
    "no JSON": (2).to_bytes(8, "little") + b"{]",
    "a list": (2).to_bytes(8, "little") + b"[]",
    "deep": (20_000).to_bytes(8, "little") + b"[" * 20_000,
    "no shape": (17).to_bytes(8, "little") + b'{"a":{"dtype":1}}',
}
ENTRY = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
ENTRIES = {
    "outside": ENTRY | {"data_offsets": [8, 24]},
    "negative": ENTRY | {"data_offsets": [-8, 8]},
    "too few bytes": ENTRY | {"data_offsets": [0, 8]},
    "negative shape": ENTRY | {"shape": [-2, -2]},
    "fraction": ENTRY | {"shape": [0.5, 8]},
    "truth": ENTRY | {"shape": [True, 4]},
}


@pytest.mark.parametrize("content", HEADERS.values(), ids=HEADERS)
def test_damaged_headers_are_refused(content, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="model.safetensors is not a safetensors file"):
        tensor_files.read_header(tmp_path / "model.safetensors")


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_contradictory_headers_are_refused(entry, tmp_path):
    text = json.dumps({"a": entry}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * 16)
    with pytest.raises(ValueError, match="is not a safetensors file"):
        tensor_files.read_header(path)


def test_a_file_cut_after_its_header_was_read_is_noticed(tmp_path):
    save_raw(tmp_path, {"a": np.zeros((8, 4), np.float32)})
    path = tmp_path / "model.safetensors"
    stored = tensor_files.read_header(path)["a"]
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="ends inside a tensor"):
        stored.read((slice(None), slice(None)))


@pytest.mark.parametrize("index", [np.s_[:, :], np.s_[3:7, :], np.s_[:, 2:5], np.s_[6:9, 0:1]])
def test_slices_are_read_in_blocks_of_any_size(index, tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_files, "BLOCK_BYTES", 50)  # two rows of 20 bytes
    array = np.arange(45, dtype=np.float32).reshape(9, 5)
    save_raw(tmp_path, {"a": array, "b": array.astype(jnp.bfloat16)})
    stored = tensor_files.read_header(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(stored["a"].read(index), array[index])
    np.testing.assert_array_equal(stored["b"].read(index), array[index].astype(jnp.bfloat16))


@pytest.mark.parametrize(
    ("content", "error", "named"),
    [
        ("[]", ValueError, "not an index"),
        ('{"weight_map": {"a": "../x.safetensors"}}', ValueError, "not a file beside it"),
        ('{"weight_map": {"a": "/etc/passwd"}}', ValueError, "not a file beside it"),
        ('{"weight_map": {"a": "gone.safetensors"}}', FileNotFoundError, "gone.safetensors"),
        ('{"weight_map": {"a": "model.safetensors"}}', ValueError, "files it names: a"),
        ('{"weight_map": {"a": 7}}', ValueError, "not an index"),
    ],
)
def test_a_wrong_index_is_refused(content, error, named, qwen3, tmp_path):
    shutil.copy(DATA / "qwen3" / "model.safetensors", tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(error, match=named):
        weights.load(tmp_path, qwen3[0])


def test_folders_without_weights_are_named(qwen3, tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no"):
        weights.load(tmp_path, qwen3[0])
    with pytest.raises(FileNotFoundError, match="config.json does not exist"):
        weights.read_dims(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        weights.read_dims(tmp_path)


def test_a_full_disk_is_noticed_before_anything_is_written(qwen3, tmp_path, monkeypatch):
    dims, params = qwen3
    weights.save(tmp_path / "out", dims, params)
    before = raw_bytes(tmp_path / "out")
    full = types.SimpleNamespace(free=1000)
    monkeypatch.setattr(export.shutil, "disk_usage", lambda path: full)
    with pytest.raises(OSError, match=r"takes 0.00 GB, and 0.00 GB are free.*bfloat16"):
        weights.save(tmp_path / "out", dims, params)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert raw_bytes(tmp_path / "out") == before


def test_an_export_that_fails_leaves_the_older_one(qwen3, tmp_path):
    dims, params = qwen3
    weights.save(tmp_path / "out", dims, params)
    before = raw_bytes(tmp_path / "out")
    huge = params | {"final_norm": params["final_norm"] * 1e6}
    with pytest.raises(ValueError, match="model.norm.weight .* not finite in float16"):
        weights.save(tmp_path / "out", dims, huge, dtype="float16")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert raw_bytes(tmp_path / "out") == before
    weights.save(tmp_path / "out", dims, huge)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    np.testing.assert_array_equal(
        weights.load(tmp_path / "out", dims)["final_norm"], huge["final_norm"]
    )


def test_parameters_of_another_model_are_not_exported(qwen3, tmp_path):
    dims, params = qwen3
    layers = params["layers"] | {"q_extra": params["layers"]["q"]}
    del layers["up"]
    with pytest.raises(ValueError) as error:
        weights.save(tmp_path / "out", dims, params | {"layers": layers})
    assert "['layers']['q_extra']: (2, 64, 96), should be absent" in str(error.value)
    assert "['layers']['up']: missing, should be (2, 64, 96)" in str(error.value)
    with pytest.raises(ValueError, match="dtype='int8'"):
        weights.save(tmp_path / "out", dims, params, dtype="int8")
    with pytest.raises(ValueError, match="needs the checkpoint"):
        weights.save(tmp_path / "out", dims, params, dtype="source")


def test_the_tokenizer_travels_along(qwen3, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(DATA / "qwen3", source)
    for name in ("tokenizer.json", "merges.txt", "chat_template.jinja", "training_args.bin"):
        (source / name).write_text(name)
    weights.save(tmp_path / "out", *qwen3, tokenizer_from=source)
    copied = {path.name for path in (tmp_path / "out").iterdir()}
    assert copied == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "merges.txt",
        "chat_template.jinja",
    }


PROCESS = """
import sys
import jax
process, port, source, out = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=process)
from disco_jax.model import mesh, tensor_files, weights
read, plain = [], tensor_files.StoredTensor.read
def counted(self, index):
    part = plain(self, index)
    read.append(part.nbytes)
    return part
tensor_files.StoredTensor.read = counted
dims = weights.read_dims(source)
table = mesh.shardings(mesh.make_mesh((1, 4, 1)), weights.shapes(dims))
params = weights.load(source, dims, table)
weights.save(out, dims, params, source, dtype="source", file_bytes=60_000)
total = sum(t.nbytes for t in tensor_files.read_header(source + "/model.safetensors").values())
print("read", sum(read), "of", total)
"""


@pytest.mark.multiprocess
def test_two_processes_read_their_shards_and_export_the_whole(tmp_path):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    env = dict(os.environ, XLA_FLAGS=os.environ["XLA_FLAGS"].replace("=8", "=2"))
    out, source = tmp_path / "out", DATA / "qwen3"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(i), str(port), str(source), str(out)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(2)
    ]
    logs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(logs)
    assert raw_bytes(out) == raw_bytes(source)
    for log in logs:
        _, read, _, total = log.strip().splitlines()[-1].split()
        assert int(read) < 0.55 * int(total), log  # half, and the norms, which both hold
