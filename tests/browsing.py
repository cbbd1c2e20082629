"""A service in a thread and a page in Chromium, for the tests of the page."""

import io
import shutil
import socket
import threading
from contextlib import contextmanager

import pytest

from live import uvicorn
from truepair.serving.page.browsing import add_page
from truepair.serving.web.app import Service
from truepair.serving.web.guard import RequestLog
from truepair.serving.web.running import application

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
VIOLATIONS = """window.violations = [];
document.addEventListener("securitypolicyviolation", (one) => window.violations.push(one.violatedDirective));
window.alert = () => window.violations.push("alert");"""


@contextmanager
def running_page(model, store, beside=None, **options):
    """The address of a service with the page."""
    service = Service(model, store, **{"log": RequestLog(io.StringIO()), **options})
    add_page(service, beside)
    config = uvicorn.Config(application(service), log_config=None, ws="none")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def chromium():
    """A browser; a test that asks for it is skipped where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


class Watched:
    """A page that notes its errors, its requests and every break of its policy."""

    def __init__(self, browser, base, **options):
        self.base, self.errors, self.hosts = base, [], set()
        self.context = browser.new_context(**options)
        self.context.add_init_script(VIOLATIONS)
        self.page = self.context.new_page()
        self.page.set_default_timeout(8000)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda note: note.type == "error" and self.errors.append(note.text))
        self.page.on("request", lambda request: self.hosts.add("/".join(request.url.split("/")[:3])))

    def open(self, path):
        """Go to a view and wait until it is there."""
        self.page.goto(f"{self.base}/{path}")
        self.wait()
        return self.page

    def wait(self):
        self.until("document.title.includes('·') && !document.querySelector('main .skeleton')")

    def until(self, condition, argument=None):
        """Wait for a condition; Playwright's own way needs eval, which the policy forbids."""
        for _ in range(400):
            if self.page.evaluate(condition, argument):
                return
            self.page.wait_for_timeout(20)
        raise AssertionError(f"{condition} never came true: {self.page.locator('main').inner_text()[:500]}")

    def check(self):
        """No error, no other host, nothing against the policy, nothing wider than the page."""
        assert self.errors == []
        assert self.hosts <= {self.base}
        assert self.page.evaluate("window.violations") == []
        assert self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    def close(self):
        self.context.close()
