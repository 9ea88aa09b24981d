import gzip
import json

import numpy as np
import pytest

from disco_jax.rollout import saved
from disco_jax.rollout.saved import Saved

Q, N, P, T = 4, 3, 6, 8
WIDTHS = {"prompt_tokens": P, "max_tokens": T, "pad_id": 0}


@pytest.fixture
def step(ragged):
    rng = np.random.default_rng(5)
    return Saved(
        step=12,
        policy="1f2e",
        temperature=0.6,
        question_ids=[f"q{i}" for i in range(Q)],
        rollouts=ragged,
        reward_QN=rng.integers(0, 2, (Q, N)).astype(np.float32),
        texts=[[f"\\boxed{{{q}}}\u2028\n\ud7ff {n}" for n in range(N)] for q in range(Q)],
        reasons=[["unequal"] * N for _ in range(Q)],
    )


def test_reading_gives_back_the_very_same_arrays(step, tmp_path):
    saved.write(tmp_path, step)
    found = saved.read(tmp_path, 12, **WIDTHS)
    for name, expected in step.rollouts._asdict().items():
        array = getattr(found.rollouts, name)
        assert array.dtype == expected.dtype, name
        np.testing.assert_array_equal(array, expected, err_msg=name)
    np.testing.assert_array_equal(found.reward_QN, step.reward_QN)
    assert found.reward_QN.dtype == np.float32
    plain = ("step", "policy", "temperature", "question_ids", "texts", "reasons")
    assert all(getattr(found, name) == getattr(step, name) for name in plain)


def test_every_float32_survives(step, tmp_path):
    rng = np.random.default_rng(6)
    bits = rng.integers(0, 2**32, (Q, N, 20_000), np.uint32)
    logp_QNT = bits.view(np.float32)
    logp_QNT = np.where(np.isfinite(logp_QNT), logp_QNT, np.float32(-1e-45))
    rollouts = step.rollouts._replace(
        tokens_QNT=np.ones(logp_QNT.shape, np.int32),
        length_QN=np.full((Q, N), logp_QNT.shape[-1], np.int32),
        logp_QNT=logp_QNT,
    )
    saved.write(tmp_path, step._replace(rollouts=rollouts))
    found = saved.read(tmp_path, 12, prompt_tokens=P, max_tokens=20_000, pad_id=0)
    np.testing.assert_array_equal(found.rollouts.logp_QNT.view(np.uint32), logp_QNT.view(np.uint32))


def test_wider_arrays_hold_the_same_responses(step, tmp_path):
    saved.write(tmp_path, step)
    found = saved.read(tmp_path, 12, prompt_tokens=P + 2, max_tokens=T + 1, pad_id=9).rollouts
    np.testing.assert_array_equal(found.prompt_QP[:, 2:][:, -2:], step.rollouts.prompt_QP[:, -2:])
    assert (found.prompt_QP[:, :2] == 9).all() and (found.tokens_QNT[..., T] == 9).all()
    np.testing.assert_array_equal(found.logp_QNT[..., :T], step.rollouts.logp_QNT)


def test_the_file_depends_on_nothing_but_its_contents(step, tmp_path):
    first = saved.write(tmp_path / "a", step).read_bytes()
    assert saved.write(tmp_path / "b", step).read_bytes() == first
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["000012.jsonl.gz"]


def rows(file):
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


def test_lines_hold_live_tokens_only(step, tmp_path):
    head, *lines = rows(saved.write(tmp_path, step))
    assert head["questions"] == len(lines) == Q
    tokens = [len(r["tokens"]) for line in lines for r in line["responses"]]
    assert tokens == step.rollouts.length_QN.ravel().tolist()
    assert [len(line["prompt"]) for line in lines] == step.rollouts.prompt_length_Q.tolist()


def change_length(lines):
    lines[2]["responses"][0]["length"] += 1


def drop_field(lines):
    del lines[3]["responses"][1]["logp"]


def unequal_groups(lines):
    lines[1]["responses"].pop()


def huge_token(lines):
    lines[1]["responses"][0]["tokens"][0] = 2**40


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: lines.pop(), r"000012\.jsonl\.gz: not saved .*before 3 questions"),
        (lambda lines: lines.clear(), "not saved rollouts"),
        (lambda lines: lines[0].update(format=0), "the header says"),
        (change_length, r"gz:3: .*announced; from 1 to 8 fit"),
        (drop_field, r"gz:4: KeyError: 'logp'"),
        (unequal_groups, "not saved rollouts"),
        (huge_token, "gz:2: "),
    ],
)
def test_damage_is_named(step, tmp_path, damage, message):
    file = saved.write(tmp_path, step)
    lines = rows(file)
    damage(lines)
    file.write_bytes(gzip.compress("".join(json.dumps(x) + "\n" for x in lines).encode()))
    with pytest.raises(ValueError, match=message):
        saved.read(tmp_path, 12, **WIDTHS)


def test_a_torn_or_missing_file_is_named(step, tmp_path):
    file = saved.write(tmp_path, step)
    with pytest.raises(ValueError, match="000013.*step 13 was not saved there"):
        saved.read(tmp_path, 13, **WIDTHS)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ValueError, match="cannot be read"):
        saved.read(tmp_path, 12, **WIDTHS)


def test_responses_that_do_not_fit_are_refused(step, tmp_path):
    saved.write(tmp_path, step)
    with pytest.raises(ValueError, match="tokens has 8 entries.*from 1 to 7 fit"):
        saved.read(tmp_path, 12, prompt_tokens=P, max_tokens=T - 1, pad_id=0)
    with pytest.raises(ValueError, match="prompt has 6 entries"):
        saved.read(tmp_path, 12, prompt_tokens=P - 1, max_tokens=T, pad_id=0)
