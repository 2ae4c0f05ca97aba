"""What an actor sees: a part of the schema, and conditions on rows, for every road to data.

A policy decides a `View` once for an actor and a schema. Names are hidden by giving the reduced
catalog to whatever names things; rows are hidden where a table is read, so that everything above
works on what remains. This room knows nothing of rules, requests and branches.
"""

from __future__ import annotations

from omnigraph.views.rows import ViewedReader
from omnigraph.views.view import RowGrant, TypeRights, TypeView, View
from omnigraph.views.writes import WriteRights, denied_property

__all__ = [
    "RowGrant",
    "TypeRights",
    "TypeView",
    "View",
    "ViewedReader",
    "WriteRights",
    "denied_property",
]
