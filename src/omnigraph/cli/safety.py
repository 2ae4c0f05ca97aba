"""What stands between a command and a write: say where it goes, and ask before destroying."""

from __future__ import annotations

import sys

import typer

from omnigraph.cli.addressing import ServedTarget, Target
from omnigraph.cli.global_flags import Given
from omnigraph.cli.output import Output, Styled, output_of
from omnigraph.errors import InputError


def announce(output: Output, verb: str, target: Target | ServedTarget) -> None:
    """Note the target of a write, unless told to be quiet."""
    if not output.quiet:
        output.note(Styled(f"omnigraph {verb} → {target} ({_place(target)})", "dim"))


def _place(target: Target | ServedTarget) -> str:
    if isinstance(target, ServedTarget):
        return "served"
    return "direct, local" if target.is_local else "direct, remote"


def require_consent(ctx: typer.Context, action: str, target: Target | ServedTarget) -> None:
    """Let a destructive write to a shared place happen only if somebody said so.

    Raises `InputError` without consent; nothing has been read or written by then.
    """
    if target.is_local or Given.of(ctx).yes:
        return
    output = output_of(ctx)
    if output.failures_as_json or not _somebody_is_there(output):
        raise InputError(f"`{action}` on {target} needs consent", hint="pass `--yes` to give it")
    output.ask(f"`{action}` on {target}. Continue? [y/N] ")
    # Bytes, because data may follow on the same stream.
    answer = sys.stdin.buffer.readline().decode(errors="replace").strip().lower()
    if answer not in ("y", "yes"):
        raise InputError("without consent, nothing was done")


def _somebody_is_there(output: Output) -> bool:
    # A process may be started with its streams closed.
    return bool(sys.stdin and sys.stdin.isatty() and output.stderr.isatty())
