"""Serves a policy through JetStream's gRPC server, or asks one that is being served.

    python -m disco_jax.serve --config=configs/arithmetic.py --model=runs/demo/policy
    python -m disco_jax.serve --config=configs/arithmetic.py --model=runs/demo/policy \\
        --ask="What is 3 + 4?"

The extra [jetstream] has to be installed. Responses are sampled as `config.eval` says, at most
`config.rollout.slots` at once; a question gets `config.data.suffix` and the chat template, as in
training. The server listens to this machine only. It ends on ctrl-C or SIGTERM, with
exit code 0.
"""

import functools
import signal
import socket
import threading
from typing import Any

from disco_jax import samplers, settings, setup
from disco_jax.command import FAILED, OK, Command, Option, UserError, launch
from disco_jax.report.progress import Progress
from disco_jax.setup import Model

OPTIONS = (
    Option("model", "", "a policy's folder, or an embedded one; by default config.model.path"),
    Option("port", 9000, "where the server listens"),
    Option("ask", "", "asks the server at the port this question, and prints the answer"),
)


def main(command: Command) -> int:
    """Serves until it is stopped, or asks; returns the exit code."""
    config, options = command.config, command.options
    config.rollout.backend = "jetstream"
    settings.check(config, train=False)
    if not 0 < options["port"] < 2**16:
        raise UserError(f"--port={options['port']}: 1 to 65535")
    model = setup.find_model(config, options["model"])
    if options["ask"]:
        return _ask(config, model, options["port"], options["ask"])
    return _serve(config, model, options["port"])


def _serve(config: Any, model: Model, port: int) -> int:
    try:
        with socket.create_server(("", port)):
            pass
    except OSError as error:  # gRPC would share the port with whoever has it
        raise UserError(f"--port={port}: {error}; name another one") from error
    samplers.make_sampler(config)  # tells now where JetStream is not installed
    from disco_jax.rollout.jetstream_server import Server

    progress = Progress(1)
    mesh = setup.make_mesh(config)
    engine = samplers.make_engine(config, model, mesh, config.eval)
    with progress.phase("loading the policy"):
        params = engine.load_params(setup.placed_weights(model, mesh))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: (signal.signal(number, signal.SIG_DFL), stop.set()))
    server = Server(engine, params, _text(model, config.data.suffix), config.seed, port)
    print(f"serving {model.folder} on localhost:{port}, {engine.config.slots} at once", flush=True)
    failure = None
    while failure is None and not stop.wait(0.5):
        failure = server.failure()
    progress.say(f"stopping: {failure or 'asked to'}")
    server.stop()
    return FAILED if failure else OK


def _text(model: Model, suffix: str) -> Any:
    from disco_jax.rollout.jetstream import Text

    tokenizer = model.tokenizer
    return Text(functools.partial(tokenizer.encode_prompt, suffix=suffix), tokenizer.decode)


def _ask(config: Any, model: Model, port: int, question: str) -> int:
    try:
        from disco_jax.rollout import jetstream_client
    except ImportError as error:
        raise samplers.missing_extra("disco_jax.serve", error) from error
    tokenizer = model.tokenizer
    prompt = tokenizer.encode_prompt(question, config.data.suffix)
    tokens: list[int] = []
    shown = ""
    for some in jetstream_client.ask(port, prompt, config.eval.max_tokens):
        tokens += some
        text = tokenizer.decode(tokens)
        if text.endswith("\ufffd"):  # the rest of a character is still to come
            continue
        print(text[len(shown) :], end="", flush=True)
        shown = text
    print(tokenizer.decode(tokens)[len(shown) :])
    return OK


if __name__ == "__main__":
    launch(main, options=OPTIONS, workdir=False)
