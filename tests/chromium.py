"""A page in a headless Chromium, driven by the DevTools protocol over a pipe: only the browser must be installed."""

import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
LONGEST_S = 30.0


def executable() -> str:
    """Return the browser's path; skip the test where there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium here: install one (apt-get install chromium) to run this test")
    return found


class Tab:
    """A tab of a browser: `--remote-debugging-pipe` reads commands from descriptor 3 and answers on 4."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = os.fdopen(commands, "wb", 0), os.fdopen(answers, "rb", 0)
        self._number, self._read, self._session = 0, b"", ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.errors: list[str] = []
        """Errors from the page's console and from the browser's checks, such as the content security policy."""
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            data = self._answers.read(1 << 16)
            assert data, "the browser has ended"
            self._read += data
        line, _, self._read = self._read.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
            self.errors.append(json.dumps(message["params"]))
        return message

    def view(self, width: int, height: int, scheme: str = "light") -> None:
        """Give the window a size and a color scheme."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Return the value of an expression as soon as it is true."""
        end = time.monotonic() + LONGEST_S
        while time.monotonic() < end:
            if value := self.value(expression):
                return value
            self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        raise AssertionError(f"never true: {expression}\n{self.value('document.body.innerText')}")

    def press(self, key: str) -> None:
        """Press a key that is named as in KeyboardEvent.key."""
        codes = {"Enter": 13, "ArrowDown": 40, "ArrowUp": 38, "ArrowRight": 39, "ArrowLeft": 37, "/": 191}
        text = {"Enter": "\r", "/": "/"}.get(key, "")
        more = {"text": text} if text else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes[key], **more)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def shot(self, path: Path) -> None:
        """Write what the window shows as a PNG file."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextlib.contextmanager
def browser() -> Iterator[Tab]:
    """Start a browser with one tab; end it after the block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
        words = [executable(), *flags, "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        read, commands = os.pipe()
        answers, write = os.pipe()
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (read, write)]
        places = [(os.POSIX_SPAWN_DUP2, end, place) for end, place in zip(theirs, (3, 4), strict=True)]
        silent = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
        process = os.posix_spawn(words[0], words, os.environ, file_actions=[*places, silent])
        for end in (read, write, *theirs):
            os.close(end)
        try:
            yield Tab(commands, answers)
        finally:
            os.kill(process, signal.SIGTERM)
            os.waitpid(process, 0)
