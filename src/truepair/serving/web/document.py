"""The OpenAPI document, as JSON at /openapi.json and as a page at /docs that loads nothing from elsewhere."""

from __future__ import annotations

import json

from fastapi import FastAPI
from fastapi.responses import Response

from truepair.data.interactions import Interactions
from truepair.serving.id_texts import escaped
from truepair.serving.web.routing import JSON, CheckedRouter, Gate, plain_value
from truepair.storage.templates import rendered
from truepair.storage.types import Json

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_EXAMPLES = {"kind": "like", "category": "new"}  # of parts of an address


def document_router(app: FastAPI, gate: Gate, seen: Interactions) -> CheckedRouter:
    """The routes that describe all routes which the application has so far."""
    user, item = (ids.ids[0].as_py() for ids in (seen.user_ids, seen.item_ids))
    text = json.dumps(app.openapi())
    for name, id in (("USER", user), ("ITEM", item)):
        text = text.replace(f'"{name}"', json.dumps(plain_value(id)))
    document: Json = json.loads(text)
    if gate.tokens:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # FastAPI's own form, which no answer has
            operation["responses"]["200"].get("content", {}).pop("", None)
            if not gate.tokens:
                operation.pop("security", None)
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    is_user = parameter["name"] == "user" or path.startswith("/v1/users/")
                    parameter["example"] = _EXAMPLES.get(parameter["name"]) or str(user if is_user else item)
    text, page = escaped(document), rendered("truepair.serving.web", "docs.html", document=document)

    async def openapi() -> Response:
        """All addresses, with schemas and examples."""
        return Response(text, media_type=JSON)

    async def docs() -> Response:
        """The same as a page."""
        return Response(page, media_type="text/html", headers={"content-security-policy": _POLICY})

    router = CheckedRouter(gate)
    router.add("GET", "/openapi.json", openapi, "read", listed=False)
    router.add("GET", "/docs", docs, "read", listed=False)
    return router
