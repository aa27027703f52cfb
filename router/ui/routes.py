"""GET /ui/: the page itself. What it shows, it asks from the same address with the operator's key."""

from typing import Final

from fastapi import FastAPI, Request, Response
from starlette.responses import RedirectResponse

from router.api.errors import ApiError
from router.ui.files import page_files

PAGE: Final = "/ui/"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",  # the browser asks again, and is answered 304 while the file is the same
}


class PageRoutes:
    def __init__(self) -> None:
        self._files = page_files()

    def install(self, app: FastAPI) -> None:
        for path in ("/", "/ui"):
            app.add_api_route(path, self.redirect, methods=["GET"], include_in_schema=False)
        app.add_api_route(PAGE + "{path:path}", self.show, methods=["GET", "HEAD"], include_in_schema=False)

    async def redirect(self) -> Response:
        return RedirectResponse(PAGE)

    async def show(self, path: str, request: Request) -> Response:
        """One file of the page; 404 for any other path."""
        file = self._files.get(path or "index.html")
        if file is None:
            raise ApiError(404, f"The page has no file {path[:64]!r}", code="not_found")
        headers = {**HEADERS, "etag": file.etag}
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.media_type)
