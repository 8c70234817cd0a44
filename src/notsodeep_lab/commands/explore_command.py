"""`notsodeep explore`."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from notsodeep.cli.common import errors
from notsodeep.errors import InputError
from notsodeep.extras import missing

FIRST_PORT = 8501
_PORTS_TRIED = 50
_LOCAL = "localhost"


def explore(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port; by default the first free one from 8501.")
    ] = None,
    address: Annotated[
        str, typer.Option(help="Address to listen on; only localhost is private to this machine.")
    ] = _LOCAL,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
    max_upload: Annotated[
        int, typer.Option("--max-upload", min=1, max=1000, help="Largest upload, in MB.")
    ] = 20,
) -> None:
    """Explore in the browser whether a cell or a DEQ settles and how deep it must be.

    Everything is computed on this machine; nothing is sent elsewhere. Stop it with Ctrl-C.

    Example: notsodeep explore
    """
    # Only check that they are installed: the server process imports them.
    for name in ("streamlit", "matplotlib"):
        if importlib.util.find_spec(name) is None:
            raise missing("streamlit", "The explorer", name)
    free = _free_port(address, port)
    if not is_local(address):
        errors.print(
            f"[bold yellow]warning:[/] listening on {address}: everyone who can reach this address can use the page "
            "and upload files. There is no password.",
            highlight=False,
        )
    errors.print(f"notsodeep explorer: http://{address}:{free}  (stop with Ctrl-C)", highlight=False)
    code = _run_server(streamlit_command(address, free, browser=browser, max_upload=max_upload))
    if code:
        raise typer.Exit(code)


def is_local(address: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return address == _LOCAL or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def streamlit_command(address: str, port: int, *, browser: bool, max_upload: int) -> list[str]:
    """Return the command that starts streamlit."""
    script = Path(__file__).parents[1] / "explorer" / "main.py"
    options = {
        "server.address": address,
        "server.port": port,
        "server.headless": not browser,
        "server.maxUploadSize": max_upload,
        # The code does not change while the server runs, and watching it imports optional modules.
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": False,
        # On its first start streamlit would ask for an e-mail address and send it to its developers.
        "server.showEmailPrompt": False,
        "browser.serverAddress": address,
        "global.developmentMode": False,
        "client.showErrorDetails": "none",
        "client.toolbarMode": "minimal",
        # One colour per theme: a common colour would disable the dark theme.
        "theme.light.primaryColor": "#0072B2",
        "theme.dark.primaryColor": "#4db2ff",
        # The background of `plots.page_figures.dark_svg`.
        "theme.dark.backgroundColor": "#0e1117",
        "theme.dark.secondaryBackgroundColor": "#1c212b",
    }
    flags = [
        f"--{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in options.items()
    ]
    return [sys.executable, "-m", "notsodeep_lab.explorer.server", "run", str(script), *flags]


def server_environment() -> dict[str, str]:
    """Return the environment of the server: one BLAS thread, unless the user's environment sets another number."""
    # The page runs several small computations in parallel, whose BLAS threads would compete for the cores.
    return {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **os.environ}


def _run_server(command: list[str]) -> int:
    """Run the server until it ends or is interrupted; it never outlives this process."""
    # By default SIGTERM would end this process and leave the server running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    server = subprocess.Popen(command, env=server_environment())
    try:
        return server.wait()
    except KeyboardInterrupt:
        # The terminal has interrupted the server too.
        return 0
    finally:
        _terminate(server)


def _terminate(server: subprocess.Popen[bytes]) -> None:
    """Terminate the server, and kill it if it does not end within five seconds."""
    for end in (server.terminate, server.kill):
        if server.poll() is None:
            end()
        try:
            server.wait(timeout=5)
            return
        except subprocess.TimeoutExpired:
            continue


def _free_port(address: str, requested: int | None) -> int:
    if requested is not None:
        if not _is_free(address, requested):
            raise InputError(
                f"Port {requested} of {address} is in use. Choose another one with --port, or omit --port."
            )
        return requested
    for port in range(FIRST_PORT, FIRST_PORT + _PORTS_TRIED):
        if _is_free(address, port):
            return port
    raise InputError(
        f"No port from {FIRST_PORT} to {FIRST_PORT + _PORTS_TRIED - 1} is free. Choose one with --port."
    )


def _is_free(address: str, port: int) -> bool:
    try:
        family, *_, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except socket.gaierror:
        raise InputError(
            f"This machine has no address {address!r}. Use localhost, or 0.0.0.0 for all of its addresses."
        ) from None
    except OSError:
        return False
    return True
