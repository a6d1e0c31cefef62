"""The command `keras-trellis`.

keras-trellis serve models/pydoc --port 8000
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from keras_trellis.formats.manifest import ManifestError
from keras_trellis.serving.failures import reason
from keras_trellis.serving.server import settings
from keras_trellis.serving.server.settings import Limits

KEY = "KERAS_TRELLIS_KEY"
"""The variable of the environment that has the key."""

# Exit statuses: a command that cannot be carried out, and one that Ctrl-C ended.
_REFUSED, _INTERRUPTED = 2, 128 + signal.SIGINT
_FILES = 256  # open files beside those of connections
_BACKLOG = 2048  # connections that wait to be accepted


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="keras-trellis", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    meaning = "serve an exported language model by HTTP"
    serving = commands.add_parser("serve", help=meaning, description=meaning)
    _add_flags(serving)
    options = parser.parse_args(arguments)
    try:
        limits, key = settings.from_flags(options), read_key(options.key_file)
        serve(
            options.model,
            options.host,
            options.port,
            limits,
            key,
            allowed=options.allow_host,
        )
    except (ManifestError, ValueError, OSError, ImportError) as error:
        message = str(error).replace("`path`", "MODEL").replace(" path=", " MODEL=")
        print(f"keras-trellis: {message}", file=sys.stderr)
        return _REFUSED
    except (MemoryError, RuntimeError) as error:  # of ONNX Runtime, too
        message = f"{options.model} cannot be served with --slots={options.slots}"
        print(f"keras-trellis: {message}: {reason(error)}", file=sys.stderr)
        return _REFUSED
    except KeyboardInterrupt:  # before it listens for it
        return _INTERRUPTED
    return 0


def _add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help="the folder of a model, or of one of its versions",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="the address to listen at; other machines reach 0.0.0.0 (%(default)s)",
    )
    parser.add_argument(
        "--port", type=int, default=8000, help="0: any free one (%(default)s)"
    )
    parser.add_argument(
        "--key-file",
        type=Path,
        help=f"a file with the key that requests must send; or set {KEY}",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which a proxy on this machine asks, as its Host; may be given again",
    )
    settings.add_flags(parser)


def serve(
    model: Path,
    host: str,
    port: int,
    limits: Limits,
    key: str | None,
    ready: Callable[[str], None] = lambda address: None,
    allowed: Collection[str] = (),
) -> None:
    """Serves a model until SIGTERM or SIGINT.

    Args:
        model: the folder of a model, or of one of its versions.
        host: the name or address to listen at.
        port: the port; 0: any free one.
        limits: what the server takes on.
        key: what requests must send; None: nothing.
        ready: takes the address of the page when the server answers.
        allowed: names by which a server that listens on this machine alone may be asked, beside
            localhost and addresses in numbers.

    Raises:
        ManifestError: there is no version that can be served.
        ValueError, OSError: the address cannot be used.
        ImportError: the extra `serve` is not installed.
    """
    try:
        from keras_trellis.serving.server import running
        from keras_trellis.serving.server.service import Service
    except ImportError as error:
        raise ImportError(
            f"a server needs the extra `serve`: pip install 'keras_trellis[serve]' ({error})"
        ) from error
    with _listening(host, port) as listening:
        address, port = listening.getsockname()[:2]
        local = ipaddress.ip_address(address).is_loopback
        _allow_files(limits.connections + _FILES)
        service = Service(model, limits, _say)
        name = f"[{host}]" if ":" in host else host
        page = f"http://{name}:{port}/"

        def begin() -> None:
            version = service.versions.current.number
            _say(
                f"{service.name}, version {version}: {page}v1, and in a browser {page}"
            )
            print(f"limits, each a flag:\n{limits}", flush=True)
            if key is None and not local:
                _say(f"whoever reaches {address} may ask: set {KEY}, or --key-file")
            ready(page)

        hosts = [name.lower() for name in allowed] if local else None
        running.serve(service, listening, key, hosts, begin)


def read_key(path: Path | None) -> str | None:
    """Returns the key of a file, or of the environment; None: there is none.

    Raises:
        ValueError: it is empty, or not of one line.
        OSError: the file cannot be read.
    """
    source = f"--key-file={path}" if path else KEY
    try:
        key = os.environ.get(KEY) if path is None else path.read_text(encoding="utf-8")
    except OSError as error:
        raise OSError(f"`{source}` cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        key = ""
    if key is None:
        return None
    key = key.strip()
    if not (key and key.isascii() and key.isprintable()):
        raise ValueError(f"`{source}` must have a key in one line of ASCII")
    return key


def _listening(host: str, port: int) -> socket.socket:
    """Returns a socket that listens.

    `socket.create_server` would make one that asyncio does not know for TCP, and whose answers
    would wait for the client's acknowledgements.
    """
    if not 0 <= port < 2**16:
        raise ValueError(f"`port` must be from 0 to 65535. Received: --port={port}")
    listening = None
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = addresses[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except (OSError, UnicodeError) as error:
        if listening is not None:
            listening.close()
        raise OSError(f"--host={host} --port={port}: {error}") from error
    return listening


def _allow_files(count: int) -> None:
    """Raises the number of files that this process may open, as far as it may."""
    try:
        import resource
    except ImportError:  # Windows has no such number
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        most = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _say(sentence: str) -> None:
    print(f"keras-trellis: {sentence}", flush=True)
