"""What another service did not do: a server that is asked, or a provider of embeddings."""

from __future__ import annotations

from omnigraph.errors.base import OmnigraphError


class ServerUnreachable(OmnigraphError):
    """No server answered, or not in time; a read can be repeated."""

    code = "server_unreachable"
    wire_code = None


class UnexpectedAnswer(OmnigraphError):
    """Something answered that is no Omnigraph server, or one of another version."""

    code = "unexpected_answer"
    wire_code = None


class EmbeddingError(OmnigraphError):
    """The embedding provider refused, did not answer, or sent something that is no vector."""

    code = "embedding_error"
