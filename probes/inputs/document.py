"""`read_document`: a JSON document of one schema version, validated by a pydantic model."""

from __future__ import annotations

import json
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from probes.inputs.messages import first_fault
from tuccl.errors import MachineError

_Document = TypeVar("_Document", bound=BaseModel)


class StrictModel(BaseModel):
    """A part of a document: an unknown key is an error, since an ignored figure is a wrong one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def read_document(
    text: str, source: str, version: int, model: type[_Document], remedy: str
) -> _Document:
    """Parse a document, whose `schema_version` must be `version`.

    `source` is its name in errors, usually the path; `remedy` follows if the version is another.

    Raises:
        MachineError: not JSON, of another schema version, or a field is missing, unknown or
            malformed.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MachineError(f"{source}: cut or not valid JSON: {error!s:.120}") from error
    if not isinstance(content, dict):
        raise MachineError(f"{source}: the JSON text holds no object")
    found = content.get("schema_version")
    if found != version or isinstance(found, bool):
        stated = "no schema_version" if found is None else f"schema_version {found!r:.40}"
        raise MachineError(
            f"{source}: {stated}, this release reads schema_version {version}: {remedy}"
        )
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise MachineError(f"{source}: {first_fault(error, 'the document')}") from error
