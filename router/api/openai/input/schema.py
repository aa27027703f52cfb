"""Bodies in the OpenAPI description. They are read by hand, so FastAPI does not see them itself."""

from functools import cache
from typing import Any

import msgspec

from router.api.openai.input.bodies import Body
from router.api.openai.input.unsupported import NAMES


@cache
def body_schema(kind: type[Body]) -> dict[str, Any]:
    """Describe a body for OpenAPI: ``openapi_extra`` of a route that takes ``kind``. Routes share it: change nothing in
    it.
    """
    schema = msgspec.json.schema(_supported(kind))
    definitions = schema.pop("$defs", {})
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": _inline(schema, definitions)}}}
    }


def _supported(kind: type[Body]) -> type[msgspec.Struct]:
    """Return the same kind of body without the fields that are refused."""
    fields = [field for field in msgspec.structs.fields(kind) if field.name not in NAMES]
    if len(fields) == len(kind.__struct_fields__):
        return kind
    kept = [
        (field.name, field.type) if field.required else (field.name, field.type, _default(field)) for field in fields
    ]
    return msgspec.defstruct(kind.__name__, kept, bases=(Body,), kw_only=True)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return msgspec.field(name=field.encode_name, default=field.default)


def _inline(node: Any, definitions: dict[str, Any]) -> Any:
    """References point into the body's own schema, which is not the document's root: put what they name in place."""
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline(definitions[node["$ref"].rpartition("/")[2]], definitions)
    return {key: _inline(value, definitions) for key, value in node.items()}
