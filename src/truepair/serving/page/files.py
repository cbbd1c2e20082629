"""Files of the page: public, as no data is in them, and under a policy that lets nothing else run."""

from __future__ import annotations

from importlib.resources import files

from fastapi.responses import Response

from truepair.serving.refusals import RefusalError
from truepair.serving.web.routing import CheckedRouter, Gate

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' https:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""Scripts and styles of the page's own files alone; pictures from elsewhere, as item tables name them."""
_HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
}
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def files_router(gate: Gate) -> CheckedRouter:
    """The routes of the files, which need no token. They are read once; no other name is served."""
    folder = files("truepair.serving.page") / "static"
    contents = {file.name: file.read_bytes() for file in folder.iterdir() if _kind(file.name)}

    async def file(name: str) -> Response:
        """A script, a style, the icon."""
        if name not in contents:
            raise RefusalError(404, f"the page has no file {name!r:.60}.")
        return Response(contents[name], headers=_HEADERS, media_type=_kind(name))

    async def page() -> Response:
        """The page itself."""
        return await file("index.html")

    router = CheckedRouter(gate)
    router.add("GET", "/", page, None, listed=False)
    router.add("GET", "/page/{name}", file, None, listed=False)
    return router


def _kind(name: str) -> str | None:
    return _KINDS.get(name[name.rfind(".") :])
