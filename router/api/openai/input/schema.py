"""Bodies in the OpenAPI description. They are read by hand, so FastAPI does not see them itself."""

from typing import Any

import msgspec

from router.api.openai.input.bodies import Body


def body_schema(kind: type[Body]) -> dict[str, Any]:
    """Describe a body for OpenAPI: ``openapi_extra`` of a route that takes ``kind``."""
    schema = msgspec.json.schema(kind)
    definitions = schema.pop("$defs", {})
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": _inline(schema, definitions)}}}
    }


def _inline(node: Any, definitions: dict[str, Any]) -> Any:
    """References point into the body's own schema, which is not the document's root: put what they name in place."""
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline(definitions[node["$ref"].rpartition("/")[2]], definitions)
    return {key: _inline(value, definitions) for key, value in node.items()}
