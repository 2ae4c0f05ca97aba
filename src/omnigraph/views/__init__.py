"""Views: the part of the schema and the rows that an actor sees, on all read paths.

A policy computes a `View` per actor and schema. Names are hidden by compiling with the reduced
catalog; rows are filtered where tables are read, so all code above works on the visible rows. This
room does not depend on rules, requests and branches.
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
