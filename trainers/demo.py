"""Shows in the browser how an exported language model scores a text, and what it writes.

    python -m trainers.demo --model=models/ptb-small

The command serves the model as `keras-trellis serve` does, and opens the page in a browser.
"""

import sys
import threading
import webbrowser
from pathlib import Path

from absl import flags

from keras_trellis.serving.server import command as server
from keras_trellis.serving.server.settings import Limits
from trainers.cli import command, flag_errors

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the command's flags, in a function because other commands share their names."""
    flags.DEFINE_string("model", None, "The folder of an exported language model.")
    flags.DEFINE_string(
        "host", "127.0.0.1", "The address to serve; other machines reach 0.0.0.0."
    )
    flags.DEFINE_integer("port", 8600, "The port; 0: any free one.", 0, 2**16 - 1)


def main(argv: list[str]) -> int:
    """Serves the page until Ctrl-C or SIGTERM; returns the exit status."""
    return command.exit_status(argv, lambda: serve(FLAGS.model, FLAGS.host, FLAGS.port))


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line; exits with one line if it is not valid."""
    return command.parse(argv, lambda: command.require("model"))


def serve(model: str, host: str, port: int) -> None:
    """Serves a model and its page.

    Args:
        model: the folder of an exported language model.
        host: the name or address to listen at.
        port: the port; 0: any free one.

    Raises:
        ValueError, OSError: the folder has no language model that the server runs, or the address
            cannot be used.
        ImportError: the extra `serve` is not installed.
    """
    with flag_errors.naming("model", "path"):
        key = server.read_key(None)
        server.serve(Path(model), host, port, Limits(), key, _open)


def _open(address: str) -> None:
    """Opens a page where somebody looks on, and a browser has a window of its own."""
    if not sys.stdout.isatty():
        return
    try:
        browser = webbrowser.get()
    except webbrowser.Error:  # there is none
        return
    if type(browser) is not webbrowser.GenericBrowser:  # a browser of the terminal
        threading.Thread(target=browser.open, args=[address], daemon=True).start()


if __name__ == "__main__":
    define_flags()
    command.start(main, parse_flags)
