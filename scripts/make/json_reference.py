"""The page of all members of JSON documents, made from their schemas."""

from __future__ import annotations

import json
from typing import Any

from write_json_schemas import schema_texts

HEAD = """\
# Members of the JSON documents

Every member of what `--json` prints and of `tuccl-manifest.json`, with its type and meaning. This
page is made from the schemas by `scripts/make/write_reference.py`; [JSON documents](json.md) tells
which command prints which, and what stands behind the members.
"""
_REFERENCE = "#/$defs/"

Schema = dict[str, Any]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _type(schema: Schema, anchors: dict[str, str]) -> str:
    """The type of a member in words, with links to its parts."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REFERENCE)
        return f"[`{name}`](#{anchors[name]})"
    if "anyOf" in schema:
        return " or ".join(_type(part, anchors) for part in schema["anyOf"])
    if "items" in schema:
        return f"list of {_type(schema['items'], anchors)}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'], anchors)}"
    return _plain_type(schema)


def _plain_type(schema: Schema) -> str:
    """The type of a member without parts."""
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "prefixItems" in schema:
        return f"list of {len(schema['prefixItems'])}"
    return str(schema.get("type", "any value"))


def _section(heading: str, schema: Schema, anchors: dict[str, str]) -> str:
    parts = [f"## {heading}"]
    if "description" in schema:
        parts.append(" ".join(str(schema["description"]).split()))
    if "properties" not in schema:
        parts.append(f"Type: {_type(schema, anchors)}.")
        return "\n\n".join(parts)
    rows = [
        f"| `{name}` | {_type(member, anchors)} | {_cell(member.get('description', ''))} |"
        for name, member in schema["properties"].items()
    ]
    parts.append("\n".join(["| member | type | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def page() -> str:
    """The text of the page: documents, then their parts, each once."""
    documents: list[str] = []
    parts: dict[str, tuple[str, Schema]] = {}
    texts: dict[str, str] = {}
    for file, text in sorted(schema_texts().items()):
        document, schema = file.removesuffix(".schema.json"), json.loads(text)
        anchors: dict[str, str] = {}
        for name, part in schema.get("$defs", {}).items():
            is_known = parts.get(name, (name, part))[1] == part
            key = name if is_known else f"{name} of {document}"
            parts.setdefault(key, (name, part))
            anchors[name] = key.lower().replace(" ", "-")
        for key, (name, part) in parts.items():
            if name in anchors and anchors[name] == key.lower().replace(" ", "-"):
                texts.setdefault(key, _section(f"`{key}`", part, anchors))
        documents.append(_section(f"`{document}`", schema, anchors))
    return "\n\n".join([HEAD.rstrip(), *documents, *(texts[key] for key in sorted(texts))]) + "\n"
