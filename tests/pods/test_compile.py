"""Programs compiled for TPUs that are not there: they fit, they are refused, checks hold."""

import importlib.util
import json

import pytest

from disco_jax import command, compile_check
from disco_jax.model import mesh as meshes
from disco_jax.pods import topologies

TPU = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed (the extra `aot`)"
)
MODEL = {
    "architectures": ["Qwen2ForCausalLM"],
    "vocab_size": 640,
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 384,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
SMALL = (
    "--config.questions=8", "--config.responses=4", "--config.minibatches=2",
    "--config.data.prompt_tokens=129", "--config.rollout.max_tokens=384",
    "--config.rollout.slots=8", "--config.rollout.prefill_questions=4",
    "--config.packing.row_tokens=512", "--config.packing.rows=2",
    "--config.packing.head_chunk=128",
)  # fmt: skip


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    """Runs the command on a folder that holds a config.json and nothing else."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(MODEL))

    def go(*flags, path=str(model)):
        argv = ["compile_check", "--config=configs/base.py", f"--config.model.path={path}", *SMALL]
        monkeypatch.setattr("sys.argv", [*argv, *flags])
        with pytest.raises(SystemExit) as stopped:
            compile_check.main()
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return go


@TPU
@pytest.mark.slow
def test_update_and_rollout_compile(run, tmp_path):
    out = tmp_path / "figures.json"
    code, text, err = run(
        "--topology=v5e:2x2", f"--out={out}", "--programs=pull back,optimizer,decode"
    )
    assert code == command.OK, text + err
    figures = json.loads(out.read_text())
    programs = {p["program"]: p for p in figures["programs"]}
    assert list(programs) == ["pull back", "optimizer", "decode"]
    pull_back = programs["pull back"]
    assert pull_back["calls"] == 4  # 2 minibatches of 16 sequences, 8 rows each time
    assert pull_back["memory"]["aliased"] > 0  # the gradient is added up in place
    assert pull_back["collectives"]["all-gather"]["executions"] >= 2 * MODEL["num_hidden_layers"]
    assert pull_back["flops"]["executed"] > pull_back["flops"]["useful"] > 0
    assert not any(pull_back["faults"].values()) and len(pull_back["faults"]) == 5
    # All of the state is an argument of the optimizer, and waits beside the decoding.
    state = programs["optimizer"]["memory"]["arguments"]
    assert programs["decode"]["memory"]["beside"] == pytest.approx(state * 3 / 4, rel=0.05)
    assert "Fits" in text and "FAULT" not in text


@TPU
@pytest.mark.slow
def test_each_process_samples_its_share_on_its_own_devices(run, tmp_path):
    """Four hosts of four chips: a quarter of the questions and slots each, whole policies, cast
    before they are gathered."""
    out = tmp_path / "figures.json"
    slots = "--config.rollout.slots=64"
    code, text, err = run(
        "--topology=v5e:4x4",
        f"--out={out}",
        slots,
        "--programs=load,load layer,prefill,decode,slide,widen",
    )
    assert code == command.OK, text + err
    load, layer, prefill, decode, slide, widen = json.loads(out.read_text())["programs"]
    assert layer["calls"] == MODEL["num_hidden_layers"]
    for program in (load, layer):
        sent = program["collectives"]["all-gather"]["sent_bytes"]
        assert sent == pytest.approx(program["memory"]["outputs"] * 15 / 16, rel=0.05)
    assert prefill["calls"] == 1  # of four prompts; the process has two of the eight
    cache = 2 * 2 * 2 * 64 * (129 + 384 + 32) * 2 * 16 / 4  # of a device's four slots
    assert cache < slide["memory"]["aliased"] < 1.5 * cache  # in place
    assert widen["memory"]["aliased"] == 0 and cache < widen["memory"]["outputs"] < 1.5 * cache
    assert decode["calls"] == slide["calls"] == 384 / 32  # one wave

    code, _, err = run("--topology=v5e:4x4", "--programs=load", "--config.rollout.slots=24")
    assert code == command.WRONG and "multiple of 16: 4 processes of 4 devices" in err
    code, text, err = run("--topology=v5e:4x4", "--programs=load", "--config.rollout.slots=0")
    assert code == command.OK and "rollout.slots=0: 8 slots (2 on each of 4 replicas)" in err


@TPU
@pytest.mark.slow
def test_adapters_and_offloaded_moments_are_counted(run, tmp_path):
    out = tmp_path / "figures.json"

    def programs(*flags):
        code, text, err = run("--topology=v5e:2x2", f"--out={out}", "--effort=-1", *flags)
        assert code == command.OK, text + err
        return {p["program"]: p for p in json.loads(out.read_text())["programs"]}

    names = "--programs=gradient,optimizer,merge,decode"
    rows = "--config.packing.rows=4"  # a minibatch in one micro-batch
    full = programs(names, rows)
    offloaded = programs(names, rows, "--config.optimizer.offload=True")
    adapted = programs(names, rows, "--config.model.lora_rank=4")
    assert "merge" not in full and "merge" in adapted
    state = full["decode"]["memory"]["beside"]
    assert offloaded["decode"]["memory"]["beside"] == pytest.approx(state / 3, rel=0.05)
    assert adapted["decode"]["memory"]["beside"] < 0.4 * state
    for name in ("gradient", "optimizer"):
        assert adapted[name]["needed"] < full[name]["needed"]
    same = [run["optimizer"]["memory"]["arguments"] for run in (full, offloaded)]
    assert same[0] == same[1]
    flops = [run["gradient"]["flops"]["executed"] for run in (full, adapted)]
    assert 0.6 * flops[0] < flops[1] < flops[0]


@TPU
def test_too_large_is_refused_with_what_it_needs(run, tmp_path):
    """A sampler's cache of more than the memory there is: the compiler says how much."""
    out = tmp_path / "figures.json"
    code, text, _ = run(
        "--topology=v5e:2x2", "--programs=decode", f"--out={out}", "--config.rollout.slots=524288"
    )
    assert code == command.FAILED
    assert "REFUSED decode: RESOURCE_EXHAUSTED" in text and "--config.rollout.slots=" in text
    (decode,) = json.loads(out.read_text())["programs"]
    assert not decode["fits"] and decode["needed"] > decode["available"] > 15 * 2**30


@TPU
def test_meshes_of_slices():
    target = topologies.find("v5e:2x2", slices=2)
    assert target.devices_per_slice == 4 and len(target.devices) == 8
    mesh = meshes.make_mesh((2, -1, 1), target.devices)
    slices = [[d.slice_index for d in row.flat] for row in mesh.devices]
    assert slices == [[0] * 4, [1] * 4]
    with pytest.raises(ValueError, match="multiple of the 2 slices"):
        meshes.make_mesh((1, -1, 1), target.devices)


@pytest.mark.parametrize(
    "flags,error",
    [
        (("--topology=v9:2x2",), "a chip (v5e, v5p, v6e, h100, h200) and its shape"),
        (("--topology=h200:3x4",), "GPUs are N or HOSTSx8"),
        (("--topology=v5e:2x2", "--effort=3"), "a number from -1 to 0"),
        (("--topology=v5e:2x2", "--config.rollout.slots=7"), "rollout.slots=7"),
    ],
)
def test_errors_in_one_line(run, flags, error):
    if "v5e" in flags[0] and importlib.util.find_spec("libtpu") is None:
        pytest.skip("libtpu is not installed (the extra `aot`)")
    code, _, err = run(*flags)
    assert code == command.WRONG and error in err and err.count("\n") == 1, err


def test_unknown_model(run):
    code, _, err = run("--topology=v5e:2x2", path="no/such/model")
    assert code == command.WRONG and "no config.json there" in err and "Qwen-7B" in err
