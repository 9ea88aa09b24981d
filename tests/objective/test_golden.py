"""Numbers computed independently of this package come out of it, in float64 and float32."""

import json
import pathlib

import numpy as np
import pytest

from disco_jax.golden import check

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
CASES = {entry["id"]: entry for entry in json.loads((GOLDEN / "index.json").read_text())["cases"]}


def load(name):
    with np.load(GOLDEN / CASES[name]["file"], allow_pickle=False) as data:
        return dict(data)


@pytest.mark.parametrize("name", CASES)
def test_golden_case(name):
    line = check.check(CASES[name], load(name))
    assert line["ok"], line
    assert line["max_rel_err"] <= 1e-9


def folder(tmp_path, entry, arrays):
    (tmp_path / "index.json").write_text(json.dumps({"cases": [entry]}))
    np.savez(tmp_path / entry["file"], **arrays)
    return str(tmp_path)


def test_a_wrong_number_is_found(tmp_path, capsys):
    name = "disco_allinvalid_b"
    arrays = load(name)
    arrays["grad_all"][0, 0] += 1e-12
    assert check.main([folder(tmp_path, CASES[name], arrays)]) == 1
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["id"] == name
    assert not first["ok"]
    assert list(first["wrong"]) == ["grad_all (float64)"]
    assert last == {"cases": 1, "ok": 0}


def test_a_field_that_is_not_known_is_not_passed_over(tmp_path, capsys):
    name = "disco_allinvalid_b"
    assert check.main([folder(tmp_path, CASES[name], load(name) | {"novelty": np.zeros(3)})]) == 1
    assert "novelty" in json.loads(capsys.readouterr().out.splitlines()[0])["error"]


def test_the_closing_count(tmp_path, capsys):
    name = "official_eosmask_a"
    assert check.main([folder(tmp_path, CASES[name], load(name))]) == 0
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"id": name, "ok": True, "max_rel_err": 0.0}
    assert last == {"cases": 1, "ok": 1}


def test_a_folder_without_cases(tmp_path, capsys):
    assert check.main([str(tmp_path)]) == 2
    assert "index.json" in capsys.readouterr().err


def test_a_damaged_case_fails_alone(tmp_path, capsys):
    good, bad = CASES["official_eosmask_a"], CASES["gpg_b"]
    directory = folder(tmp_path, good, load(good["id"]))
    (tmp_path / "index.json").write_text(json.dumps({"cases": [bad, good]}))
    (tmp_path / bad["file"]).write_bytes(b"PK not a zip file")
    assert check.main([directory]) == 1
    first, second, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["id"], first["ok"]) == ("gpg_b", False)
    assert second["ok"]
    assert last == {"cases": 2, "ok": 1}
