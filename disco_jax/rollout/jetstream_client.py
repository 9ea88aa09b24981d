"""Asks a JetStream server. Needs gRPC and the protocol's messages, no TensorFlow."""

from collections.abc import Iterator, Sequence

import grpc
from jetstream.core.proto import jetstream_pb2, jetstream_pb2_grpc

CONNECT_S = 5.0


def ask(port: int, prompt: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Yields the tokens of a response as they come, without the end-of-sequence token.

    Args:
      port: of a server on this machine.
      prompt: its tokens, chat template included.

    Raises:
      ConnectionError: no server there, or it refused the request or went away; says which.
    """
    address = f"localhost:{port}"
    with grpc.secure_channel(address, grpc.local_channel_credentials()) as channel:
        stub = jetstream_pb2_grpc.OrchestratorStub(channel)
        try:
            stub.HealthCheck(jetstream_pb2.HealthCheckRequest(), timeout=CONNECT_S)
            content = jetstream_pb2.DecodeRequest.TokenContent(token_ids=prompt)
            request = jetstream_pb2.DecodeRequest(token_content=content, max_tokens=max_tokens)
            for response in stub.Decode(request):
                yield list(response.stream_content.samples[0].token_ids)
        except grpc.RpcError as error:
            raise ConnectionError(f"{address}: {error.code().name}: {error.details()}") from error
