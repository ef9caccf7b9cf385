"""A headless Chromium before the page."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.service.fake_engine import PATIENCE_SECONDS

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

# The ratio of WCAG 2.2, for every element that has text of its own; canvas turns any colour into bytes.
_LOW_CONTRASTS = """() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const bytes = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (colour) => {
    const [red, green, blue] = bytes(colour).map((byte) => byte / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = (element) => {
    const colour = getComputedStyle(element).backgroundColor;
    return bytes(colour)[3] === 255 ? colour : ground(element.parentElement);
  };
  return [...document.body.querySelectorAll("*")]
    .filter((element) => element.checkVisibility() && !element.matches("fieldset:disabled *"))
    .filter((element) => [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim())
      || element.matches("input, textarea"))
    .map((element) => {
      const pair = [luminance(getComputedStyle(element).color), luminance(ground(element))];
      const [low, high] = pair.sort((a, b) => a - b);
      return [element.outerHTML.slice(0, 80), (high + 0.05) / (low + 0.05)];
    })
    .filter(([, ratio]) => ratio < 4.5);
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's own Chromium or Chrome; a machine without one fails the test."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        pytest.fail(f"no browser: none of {', '.join(BROWSERS)} is on the path", pytrace=False)
    with sync_playwright() as playwright:
        # As root, which containers are, Chromium starts without its sandbox alone.
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, url: str, *, refusals: frozenset[int] = frozenset(), **options: Any) -> Iterator[Page]:
    """The page at `url`. At the end: nothing in its console, and nothing was asked of another host.

    Args:
        refusals: statuses that the test provokes, which browsers report as errors.
        options: of the browser's context.
    """
    context = browser.new_context(reduced_motion="reduce", **options)
    context.set_default_timeout(PATIENCE_SECONDS * 1000)
    page = context.new_page()
    faults: list[str] = []
    known = tuple(f"the server responded with a status of {status}" for status in refusals)

    def on_console(message: ConsoleMessage) -> None:
        if not any(part in message.text for part in known):
            faults.append(f"{message.type}: {message.text}")

    def on_request(request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(url).netloc:
            faults.append(f"asked {request.url}")

    page.on("console", on_console)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", on_request)
    page.goto(url)
    yield page
    context.close()
    assert faults == []


def low_contrasts(page: Page) -> list[tuple[str, float]]:
    """Elements whose text has less than the AA contrast of 4.5 to what is behind it, with their ratios."""
    found: list[tuple[str, float]] = page.evaluate(_LOW_CONTRASTS)
    return found


def below(prefix: str, app: ASGIApp) -> Callable[[Scope, Receive, Send], Any]:
    """The application as a proxy shows it that owns the rest of the host."""

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            assert scope["path"].startswith(f"{prefix}/"), scope["path"]
            scope = {**scope, "root_path": prefix}
        await app(scope, receive, send)

    return proxy
