"""Serve the built pages: files as they are, the start page for every address of the application."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, Response
from starlette.exceptions import HTTPException

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Charts set sizes by style attributes, so styles may stand in the page; scripts may not."""

SAFETY: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
"""Headers of every answer."""

NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Secondsight</title>
<h1>The pages are not built</h1><p>Run <code>make web</code> in the project, then load this page again.</p>
<p>The read API serves: see <a href="/openapi.json">/openapi.json</a>.</p></html>
"""

_NOT_PAGES = ("v1/", "api/", "assets/")


def static_folder(configured: Path | None) -> Path:
    """Return the folder of the built pages; it may not exist."""
    return configured or Path(str(resources.files("secondsight.api"))) / "static"


def page_routes(folder: Path) -> APIRouter:
    """Return the routes of the pages; to be added behind all others, as they take every address."""
    router = APIRouter(include_in_schema=False)

    @router.get("/{path:path}")
    def page(path: str) -> Response:
        found = _file(folder, path)
        if found is not None:
            kept = "public, max-age=31536000, immutable" if path.startswith("assets/") else "no-cache"
            return FileResponse(found, headers={"Cache-Control": kept})
        if path.startswith(_NOT_PAGES):
            raise HTTPException(404)
        return _start_page(folder)

    return router


def _file(folder: Path, path: str) -> Path | None:
    """Return a file of the folder, or None; nothing outside of it is ever given."""
    if not path or path == "index.html" or "\0" in path:
        return None
    wanted = (folder / path).resolve()
    return wanted if wanted.is_relative_to(folder.resolve()) and wanted.is_file() else None


def _start_page(folder: Path) -> Response:
    start = folder / "index.html"
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    if not start.is_file():
        return HTMLResponse(NOT_BUILT, 503, headers)
    return FileResponse(start, headers=headers, media_type="text/html")
