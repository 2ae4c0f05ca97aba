"""The words that come with a commit."""

from __future__ import annotations

from omnigraph.errors import InputError

MESSAGE_CHARACTERS_MAX = 2_000


def checked_message(text: str | None) -> str | None:
    """A message as a commit keeps it, without the space around it; None for none.

    Raises `InputError` for one that is empty, too long, or no plain text.
    """
    if text is None:
        return None
    message = text.strip()
    if not message:
        raise InputError("the message is empty", hint="say why, or leave the message out")
    if len(message) > MESSAGE_CHARACTERS_MAX:
        raise InputError(
            f"the message has {len(message)} characters, at most {MESSAGE_CHARACTERS_MAX} are kept",
            hint="keep it short, and put the rest where it belongs",
        )
    if not message.replace("\n", "").replace("\t", "").isprintable():
        raise InputError(
            "the message holds characters that cannot be printed",
            hint="use letters, spaces and line breaks",
        )
    return message
