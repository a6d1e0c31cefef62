"""The command `keras-trellis`.

keras-trellis serve models/pydoc --port 8000
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from keras_trellis.serving.manifest import ManifestError
from keras_trellis.serving.server import settings
from keras_trellis.serving.server.settings import Limits

KEY = "KERAS_TRELLIS_KEY"
"""The variable of the environment that has the key."""

_REFUSED = 2  # the exit status of a command that cannot be carried out
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
        _serve(options, settings.from_flags(options))
    except (ManifestError, ValueError, OSError, ImportError) as error:
        print(f"keras-trellis: {error}", file=sys.stderr)
        return _REFUSED
    return 0


def _add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", type=Path, help="the folder of a model, or of one of its versions"
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
    settings.add_flags(parser)


def _serve(options: argparse.Namespace, limits: Limits) -> None:
    running, service_class = _imported()
    key = _key(options.key_file)
    with _listening(options.host, options.port) as listening:
        address, port = listening.getsockname()[:2]
        local = ipaddress.ip_address(address).is_loopback
        _allow_files(limits.connections + _FILES)
        service = service_class(options.model, limits, _say)
        name = f"[{options.host}]" if ":" in options.host else options.host
        version = service.versions.current.number
        _say(f"{service.name}, version {version}: http://{name}:{port}/v1")
        print(f"limits, each a flag:\n{limits}", flush=True)
        if key is None and not local:
            _say(f"whoever reaches {address} may ask: set {KEY}, or --key-file")
        running.serve(service, listening, key, local)


def _imported():
    """Returns what needs the extra `serve`.

    Raises:
        ImportError: it is not installed.
    """
    try:
        from keras_trellis.serving.server import running
        from keras_trellis.serving.server.service import Service
    except ImportError as error:
        raise ImportError(
            f"a server needs the extra `serve`: pip install 'keras_trellis[serve]' ({error})"
        ) from error
    return running, Service


def _key(path: Path | None) -> str | None:
    """Returns the key of a file, or of the environment; None: there is none.

    Raises:
        ValueError: it is empty, or not of one line.
    """
    source = f"--key-file={path}" if path else KEY
    key = os.environ.get(KEY) if path is None else path.read_text(encoding="utf-8")
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
