"""Shows in the browser how an exported language model scores a text, and what it writes.

    python -m trainers.demo --model=models/ptb-small

The command prints the page's address. The page shows the newest version in the folder.
"""

import contextlib
import ipaddress

from absl import flags, logging

from trainers.cli import command, flag_errors
from trainers.serving.page.served import ServedModel
from trainers.serving.page.server import Page
from trainers.training import stopping

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
    """Serves the page.

    Args:
        model: the folder of an exported language model.
        host: the name or address to listen at.
        port: the port; 0: any free one.

    Raises:
        ValueError, OSError: the folder has no language model, or the address cannot be used.
    """
    with _listening(host, port) as page:
        with flag_errors.naming("model", "path"):
            page.model = ServedModel(model)
        address, number = page.server_address[:2]
        if not ipaddress.ip_address(str(address)).is_loopback:
            logging.warning(
                "Whoever reaches %s can use the page; there is no password.", address
            )
        signals = stopping.StopSignals()
        with signals, contextlib.suppress(stopping.StoppedError), signals.at_once():
            name = f"[{host}]" if ":" in host else host
            print(f"The page: http://{name}:{number}/ (Ctrl-C ends it)", flush=True)
            page.serve_forever()


def _listening(host: str, port: int) -> Page:
    try:
        return Page(host, port)
    except (OSError, UnicodeError) as error:
        raise OSError(
            f"the page cannot be served at --host={host} --port={port}: {error}"
        ) from error


if __name__ == "__main__":
    define_flags()
    command.start(main, parse_flags, computes=True)
