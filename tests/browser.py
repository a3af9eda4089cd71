"""A headless Chromium that is controlled by the DevTools protocol over websockets, without a driver."""

import json
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from websockets.sync.client import connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"]
FLAGS += [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
]


def program():
    """Return the path of Chromium, or None if it is not installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """A tab of the browser: `call` sends a command, and `events` keeps the events that it reports."""

    def __init__(self, socket):
        self._socket, self._number, self._session = socket, 0, None
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        self._socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        while (answer := json.loads(self._socket.recv(timeout=30))).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def run(self, script):
        """Return the value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def open(self, place, width=1280, height=900, scheme="light"):
        """Open `place`, a file or an address."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=place if "://" in str(place) else Path(place).resolve().as_uri())
        self.run("new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', done))")

    def hover(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector):
        box = self.run(
            f"(() => {{ const it = document.querySelector({json.dumps(selector)}); "
            "it.scrollIntoView({block: 'center', behavior: 'instant'}); const box = it.getBoundingClientRect(); "
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def told(self, method):
        """Return the events of a kind so far."""
        self.run("0")  # events before this answer have arrived
        return [event["params"] for event in self.events if event.get("method") == method]


@contextmanager
def opened(folder):
    """Start Chromium with its profile in `folder`, and end it when the block is left."""
    words = [program(), *FLAGS, f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline, told = time.monotonic() + 60, Path(folder) / "DevToolsActivePort"
        while not (told.exists() and len(told.read_text().split()) == 2):
            if time.monotonic() > deadline or process.poll() is not None:
                raise TimeoutError("Chromium did not start")
            time.sleep(0.05)
        port, path = told.read_text().split()
        with connect(f"ws://127.0.0.1:{port}{path}", max_size=None) as socket:
            yield Page(socket)
    finally:
        process.terminate()
        process.wait(timeout=30)
