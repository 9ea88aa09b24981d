"""Asks a JetStream server. Needs gRPC and the protocol's messages, no TensorFlow."""

from collections.abc import Iterator, Sequence

import grpc
from jetstream.core.proto import jetstream_pb2, jetstream_pb2_grpc

CONNECT_S = 5.0
_Request = jetstream_pb2.DecodeRequest


def ask(port: int, prompt: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Yields the tokens of a response as they come, without the end-of-sequence token.

    Args:
      port: of a server on this machine.
      prompt: its tokens, chat template included.

    Raises:
      ConnectionError: no server there, or it refused the request or went away; says which.
    """
    content = _Request.TokenContent(token_ids=prompt)
    for sample in _decode(port, _Request(token_content=content, max_tokens=max_tokens)):
        yield list(sample.token_ids)


def ask_text(port: int, text: str, max_tokens: int) -> str:
    """The response to a user's text, which the server puts into the model's chat template.

    Raises as `ask`.
    """
    content = _Request.TextContent(text=text)
    samples = _decode(port, _Request(text_content=content, max_tokens=max_tokens))
    return "".join(sample.text for sample in samples)


def _decode(port: int, request: _Request) -> Iterator:
    address = f"localhost:{port}"
    with grpc.secure_channel(address, grpc.local_channel_credentials()) as channel:
        stub = jetstream_pb2_grpc.OrchestratorStub(channel)
        try:
            stub.HealthCheck(jetstream_pb2.HealthCheckRequest(), timeout=CONNECT_S)
            for response in stub.Decode(request):
                yield response.stream_content.samples[0]
        except grpc.RpcError as error:
            raise ConnectionError(f"{address}: {error.code().name}: {error.details()}") from error
