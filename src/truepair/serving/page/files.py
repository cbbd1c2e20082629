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


class PageFiles:
    """The files of the package, read once; no other name is served."""

    def __init__(self) -> None:
        folder = files("truepair.serving.page") / "static"
        self.contents = {
            file.name: file.read_bytes()
            for file in folder.iterdir()
            if file.is_file() and f".{file.name.rpartition('.')[2]}" in _KINDS
        }

    def router(self, gate: Gate) -> CheckedRouter:
        """The routes of the files, which need no token."""
        router = CheckedRouter(gate)
        router.add("GET", "/", self.page, None, listed=False)
        router.add("GET", "/page/{name}", self.file, None, listed=False)
        return router

    async def page(self) -> Response:
        """The page itself."""
        return await self.file("index.html")

    async def file(self, name: str) -> Response:
        """A script, a style, the icon."""
        if name not in self.contents:
            raise RefusalError(404, f"the page has no file {name!r:.60}.")
        kind = _KINDS[f".{name.rpartition('.')[2]}"]
        return Response(self.contents[name], headers=_HEADERS, media_type=kind)
