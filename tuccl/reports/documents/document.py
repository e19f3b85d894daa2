"""`Document`: the base of all JSON documents, and the version of their schemas."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION: Final = 8
"""Raised when a member is added or removed, or changes its meaning."""


class Document(BaseModel):
    """A document or a part of one, without members that its schema does not have."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        json_schema_serialization_defaults_required=True,
        defer_build=True,
    )
