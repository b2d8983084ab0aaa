"""A headless Chromium over its DevTools pipe: enough to open a page, press keys and listen."""

import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--remote-debugging-pipe",
)
_PATIENCE_S = 30.0


class Browser:
    """One tab. `problems` are errors of the console, `requests` addresses that were asked for."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._unread = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[str] = []
        self.problems: list[str] = []
        self.requests: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> Any:
        """Ask for one thing. Returns the answer; what happens meanwhile is written down."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._note(answer)

    def open(self, path: Path) -> None:
        """Go to a file, and wait until it has loaded."""
        self._events.clear()
        self.send("Page.navigate", url=path.as_uri())
        while "Page.loadEventFired" not in self._events:
            self._note(self._read())
        self.settle()

    def settle(self) -> None:
        """Wait for two frames: what was asked for has been drawn."""
        self.value("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")

    def value(self, expression: str) -> Any:
        """Of an expression in the page."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def text(self, selector: str) -> str:
        """What can be read in the first element that matches."""
        return str(self.value(f"document.querySelector({json.dumps(selector)}).textContent"))

    def press(self, key: str, count: int = 1) -> None:
        """Press a key on what has the focus."""
        codes = {"Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        text = {"text": key} if len(key) == 1 else {}
        for _ in range(count):
            for kind in ("keyDown", "keyUp"):
                self.send(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key=key,
                    code=key if len(key) > 1 else "",
                    windowsVirtualKeyCode=codes.get(key, ord(key[0])),
                    **text,
                )
        self.settle()

    def focus(self, selector: str) -> None:
        """Give an element the focus."""
        self.value(f"document.querySelector({json.dumps(selector)}).focus()")

    def _read(self) -> Any:
        until = time.monotonic() + _PATIENCE_S
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], max(0, until - time.monotonic()))
            chunk = os.read(self._answers, 1 << 16) if ready else b""
            assert chunk, "Chromium does not answer"
            self._unread += chunk
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method", ""), event.get("params", {})
        self._events.append(method)
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.problems.append(json.dumps(params["args"]))


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, for as long as the block runs."""
    assert CHROMIUM is not None
    # Chromium reads commands from descriptor 3 and answers on 4.
    command_out, command_in = _high_pipe()
    answer_out, answer_in = _high_pipe()
    place_pipes = (
        f"import os, sys; os.dup2({command_out}, 3); os.dup2({answer_in}, 4);"
        " os.execv(sys.argv[1], sys.argv[1:])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", place_pipes, CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(command_out, answer_in),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "DBUS_SESSION_BUS_ADDRESS": "disabled:"},
    )
    os.close(command_out)
    os.close(answer_in)
    try:
        yield Browser(command_in, answer_out)
    finally:
        # It ends when its pipe does.
        os.close(command_in)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(answer_out)


def _high_pipe() -> tuple[int, int]:
    """A pipe whose ends are out of the way of descriptors 3 and 4."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]
