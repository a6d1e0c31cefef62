"""A server of exports in a process of its own, and what asks it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading

from tests import ROOT


class Server:
    """`keras-trellis serve`, in a process that can import neither Keras nor TensorFlow.

    Args:
        model: the folder of the model.
        flags: of the command.

    Attributes:
        lines: what the process has printed, so far.
        port: where it listens.
    """

    def __init__(self, model, *flags, **environment):
        command = [sys.executable, "-m", "tests.serving.without_tensorflow", "serve"]
        command += [str(model), "--port=0", *flags]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(
            command, cwd=ROOT, text=True, env={**os.environ, **environment}, **pipes
        )
        self.lines = [self.process.stdout.readline()]
        match = re.search(r"http://127\.0\.0\.1:(\d+)/v1", self.lines[0])
        if match is None:
            self.lines += self.process.communicate(timeout=60)
            raise AssertionError(f"it does not listen: {self.lines}")
        self.port = int(match[1])
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def ask(self, path, body=None, timeout=60, **headers):
        """Returns the status, the headers and the JSON, or the text, of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            headers = {"Content-Type": "application/json", **headers}
            method = "GET" if body is None else "POST"
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.headers.get_content_type() == "application/json":
            return response.status, response.headers, json.loads(text)
        return response.status, response.headers, text

    def answer(self, path, body=None):
        """Returns the JSON of an answer to a request that is good."""
        status, _, answer = self.ask(path, body)
        assert status == 200, answer
        return answer

    def metric(self, name):
        """Returns the value of a metric of ours, which has no labels."""
        return self.measured(f"keras_trellis_{name}")

    def measured(self, name):
        """Returns the value of any metric without labels."""
        _, _, text = self.ask("/metrics")
        return float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE)[1])

    def stop(self, number=signal.SIGTERM, timeout=60):
        """Ends the process; returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(timeout)
        self._reader.join(timeout)
        return status

    @property
    def printed(self):
        """All that the process has printed."""
        return "".join(self.lines)


def events(text):
    """Returns the events of a stream, which must be whole."""
    parts = text.split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") for part in parts)
    return [part.removeprefix("data: ") for part in parts]
