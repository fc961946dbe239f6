"""A headless Chromium driven over its debugging pipe: enough to load a page, ask it things and photograph it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
TIMEOUT_S = 180.0


def find_browser() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of one browser; every method waits for the browser's answer."""

    def __init__(self, to_fd: int, from_fd: int) -> None:
        self._to, self._from, self._rest, self._number = to_fd, from_fd, b"", 0
        self.complaints: list[str] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def show(self, address: str, width: int = 1280, height: int = 800, scheme: str = "light") -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Page.navigate", url=address)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression (promises are awaited)."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", expression))
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Until the expression is true in the page."""
        end_s = time.monotonic() + TIMEOUT_S
        while not (found := self.ask(expression)):
            if time.monotonic() > end_s:
                text = self.ask("document.body.innerText")
                raise AssertionError(f"not seen: {expression}; complaints: {self.complaints}; page: {text}")
            self.ask("new Promise(requestAnimationFrame)")
        return found

    def photograph(self, file: Path) -> bytes:
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        file.write_bytes(data)
        return data

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = os.read(self._from, 1 << 16)
            if not chunk:
                raise RuntimeError("the browser has ended")
            self._rest += chunk
        one, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(one)
        self._listen(message)
        return message

    def _listen(self, message: dict[str, Any]) -> None:
        """Keep what the page complains about: exceptions, refused content, failed requests."""
        parameters = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"]))
        if message.get("method") == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])


@contextmanager
def open_browser(program: str, profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own; ends with the block."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # the protocol uses descriptors 3 and 4; a shell puts ours there
    script = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    flags = [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
        "--no-proxy-server", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--hide-scrollbars",
        "--disable-background-networking",
    ]  # fmt: skip
    process = subprocess.Popen(
        ["bash", "-c", script, program, *flags], pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(ours_out, ours_in)
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
        os.close(ours_out)
        os.close(ours_in)
