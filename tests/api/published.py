"""Whether a JSON answer is what the published OpenAPI document says: the part of JSON Schema that document uses.

A keyword that is not known here fails, so that the check never becomes laxer than the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
    "null": type(None),
}  # fmt: skip
WORDS = {"title", "description", "examples", "example", "default", "discriminator", "deprecated", "contentMediaType"}
HANDLED = {
    "$ref", "type", "anyOf", "oneOf", "allOf", "enum", "const", "properties", "required", "additionalProperties",
    "items", "prefixItems", "format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "minItems", "maxItems", "minLength", "maxLength",
}  # fmt: skip


def breaks(document: dict[str, Any], schema: Any, value: Any, path: str = "$") -> Iterator[str]:
    """Each place at which ``value`` is not what ``schema`` says."""
    if not isinstance(schema, dict):
        return
    assert schema.keys() <= WORDS | HANDLED, schema.keys() - WORDS - HANDLED
    if "$ref" in schema:
        found = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        yield from breaks(document, found, value, path)
    for kind in ("anyOf", "oneOf"):
        if kind in schema and all(any(breaks(document, one, value, path)) for one in schema[kind]):
            yield f"{path}: {str(value)[:80]!r} is none of {kind}"
    for one in schema.get("allOf", ()):
        yield from breaks(document, one, value, path)
    yield from _plain(schema, value, path)
    if isinstance(value, dict):
        yield from _object(document, schema, value, path)
    if isinstance(value, list):
        for at, item in enumerate(value):
            first = schema.get("prefixItems", ())
            yield from breaks(
                document, first[at] if at < len(first) else schema.get("items", {}), item, f"{path}[{at}]"
            )


def _plain(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    kinds = schema.get("type", [])
    names = [kinds] if isinstance(kinds, str) else kinds
    if names and not any(_is(name, value) for name in names):
        yield f"{path}: {str(value)[:80]!r} is no {kinds}"
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        yield f"{path}: {value!r} is not allowed"
    if isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{path}: {value[:80]!r} does not match"
        if schema.get("format") == "date-time" and not _is_moment(value):
            yield f"{path}: {value[:80]!r} is no RFC 3339 time with a zone"
    size = len(value) if isinstance(value, str | list) else None
    for least, most in (("minLength", "maxLength"), ("minItems", "maxItems")):
        if size is not None and not schema.get(least, 0) <= size <= schema.get(most, size):
            yield f"{path}: length {size}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        if not low <= value <= high:
            yield f"{path}: {value} is out of range"


def _is(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES[name])


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None and "T" in text
    except ValueError:
        return False


def _object(document: dict[str, Any], schema: dict[str, Any], value: dict[str, Any], path: str) -> Iterator[str]:
    known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}: is missing"
    for name, part in value.items():
        if name in known:
            yield from breaks(document, known[name], part, f"{path}.{name}")
        elif more is False or (known and more is True):
            yield f"{path}.{name}: is not in the document"
        else:
            yield from breaks(document, more, part, f"{path}.{name}")
