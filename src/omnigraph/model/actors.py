"""Who does something: the rules an actor id follows wherever a person can set one."""

from __future__ import annotations

from omnigraph.errors import InputError

RESERVED_PREFIX = "omnigraph:"
"""Actor ids that begin so are signed by the product itself, for example in recovery."""


def check_declared_actor(actor: str, *, where: str = "an actor id") -> None:
    """Refuse an id nobody may declare: a blank one, or one the product signs with.

    ``where`` says in the message where it was given. An id is otherwise any text, and is compared
    as it is.
    """
    if not actor.strip():
        raise InputError(f"{where} is blank", hint="give the id of who acts, or leave it out")
    if actor.startswith(RESERVED_PREFIX):
        raise InputError(
            f"{where} is `{actor}`, and ids that begin `{RESERVED_PREFIX}` are reserved",
            hint="use another id: these are signed by Omnigraph itself",
            details={"actor_id": actor},
        )
