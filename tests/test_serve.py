"""What goes wrong before anything is served; what is served: tests/rollout/test_jetstream.py."""

import pathlib
import socket
import sys

import pytest

from disco_jax import processes, serve, train
from disco_jax.command import WRONG, launch

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONFIG = "--config=configs/arithmetic.py"


@pytest.fixture(autouse=True)
def no_jetstream(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(sys.modules, "jetstream", None)


def refused(capsys, main, *arguments, **kwargs) -> str:
    with pytest.raises(SystemExit) as end:
        launch(main, ["serve", CONFIG, *arguments], **kwargs)
    assert end.value.code == WRONG
    text = capsys.readouterr().err
    assert "Traceback" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("error: ")]
    return line


def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port=FREE"], "needs the extra [jetstream], google-jetstream 0.2.2"),
        (["--ask=3+4"], "needs the extra [jetstream], google-jetstream 0.2.2"),
        (["--port=0"], "--port=0: 1 to 65535"),
        (["--model=nowhere"], "neither a folder nor an embedded model"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line(capsys, arguments, message):
    arguments = [text.replace("FREE", str(free_port())) for text in arguments]
    line = refused(capsys, serve.main, *arguments, options=serve.OPTIONS, workdir=False)
    assert message in line


def test_a_port_in_use_is_refused(capsys):
    with socket.create_server(("", 0)) as other:
        port = f"--port={other.getsockname()[1]}"
        line = refused(capsys, serve.main, port, options=serve.OPTIONS, workdir=False)
    assert port in line and "name another one" in line


def test_the_back_end_of_a_run_needs_the_extra(capsys, tmp_path):
    arguments = ["--config.rollout.backend=jetstream", f"--workdir={tmp_path / 'run'}"]
    line = refused(capsys, train.train, *arguments, options=[processes.OPTION])
    assert "config.rollout.backend='jetstream' needs the extra [jetstream]" in line
    assert not (tmp_path / "run").exists()
