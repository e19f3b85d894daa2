"""Results as JSON: a frozen dataclass is converted by its fields, and its schema is made from them.

The members are the fields and the properties that `member` marks. The docstrings below fields are
the descriptions of the schema.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ConfigDict, RootModel, TypeAdapter, computed_field

ResultT = TypeVar("ResultT")
SCHEMA_VERSION: Final = 13
"""Raised when a member is added or removed, or changes its meaning."""

if TYPE_CHECKING:
    member = property
else:

    def member(get: object) -> object:
        """Return a property that is a member of the JSON object, as the fields are."""
        return computed_field(property(get))


def json_of(result: object) -> dict[str, Any]:
    """Return a result as JSON values; an infinite figure becomes null."""
    values = json.loads(TypeAdapter(type(result)).dump_json(result))
    return {"schema_version": SCHEMA_VERSION, **values}


def result_from(kind: type[ResultT], data: str | bytes) -> ResultT:
    """Return the result of a JSON object; its computed members are computed again.

    Raises:
        ValueError: It is none, or of another version.
    """
    values = json.loads(data)
    if not isinstance(values, dict) or values.pop("schema_version", None) != SCHEMA_VERSION:
        raise ValueError(f"no JSON object of schema version {SCHEMA_VERSION}")
    return TypeAdapter(kind).validate_json(json.dumps(values))


def fields_of(result: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, as they are, for a class that has more."""
    return {field.name: getattr(result, field.name) for field in fields(result)}


def schema_of(kind: type) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of a result."""

    class Root(RootModel[kind]):  # type: ignore[valid-type]
        model_config = ConfigDict(
            use_attribute_docstrings=True, json_schema_serialization_defaults_required=True
        )

    found = Root.model_json_schema(mode="serialization")
    parts = found.pop("$defs")
    for part in parts.values():
        if "properties" in part:
            part["additionalProperties"] = False
    own = parts.pop(found["$ref"].rpartition("/")[2])
    version = {"const": SCHEMA_VERSION, "title": "Schema Version", "type": "integer"}
    return {
        **({"$defs": parts} if parts else {}),
        **own,
        "properties": {"schema_version": version, **own["properties"]},
        "required": ["schema_version", *own["required"]],
    }
