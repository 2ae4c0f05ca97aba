"""Ids that a caller may and may not declare."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.errors import InputError
from omnigraph.model.ids import check_declared_actor


@pytest.mark.parametrize("actor", ["act-ana", "Omnigraph:x", "x:omnigraph:", "é 😀", " padded "])
def test_other_ids_are_any_text(actor: str):
    check_declared_actor(actor)


@pytest.mark.parametrize("actor", ["omnigraph:recovery", "omnigraph:", "omnigraph:x"])
def test_c_pol_040_reserved_ids_are_refused_with_the_place(actor: str):
    with pytest.raises(InputError, match=f"the token file is `{actor}`") as caught:
        check_declared_actor(actor, where="the token file")
    assert caught.value.details == {"actor_id": actor}


@pytest.mark.parametrize("actor", ["", " ", "\n"])
def test_blank_ids_are_refused(actor: str):
    with pytest.raises(InputError, match="is blank"):
        check_declared_actor(actor)


def test_c_pol_040_a_frame_cannot_be_written_by_a_reserved_actor():
    from omnigraph.pipeline.data_source.options import SourceOptions
    from omnigraph.pipeline.data_source.writing import FrameWriter

    options = SourceOptions("no graph", "Person", actor="omnigraph:me")
    schema: Any = None  # refused before anything is opened
    with pytest.raises(InputError, match="the option `actor` is `omnigraph:me`"):
        FrameWriter(options, schema, overwrite=False)
