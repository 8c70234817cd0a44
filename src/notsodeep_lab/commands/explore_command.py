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
        int | None, typer.Option(min=1, max=65535, help="Port to listen on; the first free one from 8501 on.")
    ] = None,
    address: Annotated[
        str, typer.Option(help="Address to listen on. Any other than localhost lets other machines in.")
    ] = _LOCAL,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
    max_upload: Annotated[
        int, typer.Option("--max-upload", min=1, max=1000, help="Largest file to upload, in MB.")
    ] = 20,
) -> None:
    """Sliders, curves and spectra in the browser: a DEQ, its shallow twin, and how well theory predicts them.

    Everything is computed on this machine and nothing leaves it. Ctrl-C ends it.

    Example: notsodeep explore
    """
    # Looked for, not imported: the server does that in a process of its own.
    for name in ("streamlit", "matplotlib", "jinja2", "msgspec"):
        if importlib.util.find_spec(name) is None:
            raise missing("streamlit", "The explorer", name)
    free = _free_port(address, port)
    if not is_local(address):
        errors.print(
            f"[bold yellow]warning:[/] listening on {address}: everyone who reaches this machine there can use the "
            "page, upload files and keep the processor busy. There is no password.",
            highlight=False,
        )
    errors.print(f"notsodeep explorer: http://{address}:{free}  (Ctrl-C ends it)", highlight=False)
    code = _served(streamlit_command(address, free, browser=browser, max_upload=max_upload))
    if code:
        raise typer.Exit(code)


def is_local(address: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return address == _LOCAL or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def streamlit_command(address: str, port: int, *, browser: bool, max_upload: int) -> list[str]:
    """How streamlit is started."""
    script = Path(__file__).parents[1] / "explorer" / "main.py"
    options = {
        "server.address": address,
        "server.port": port,
        "server.headless": not browser,
        "server.maxUploadSize": max_upload,
        # The code does not change while it runs, and watching it would import whatever it finds.
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": False,
        # On its first start streamlit would ask for an e-mail address, and send it to its makers.
        "server.showEmailPrompt": False,
        "browser.serverAddress": address,
        "global.developmentMode": False,
        "client.showErrorDetails": "none",
        "client.toolbarMode": "minimal",
        # One colour for each theme: a colour for both would switch the dark one off.
        "theme.light.primaryColor": "#0072B2",
        "theme.dark.primaryColor": "#4db2ff",
        # As `figures.dark_svg` has it, so that figures lie on the page without a frame.
        "theme.dark.backgroundColor": "#0e1117",
        "theme.dark.secondaryBackgroundColor": "#1c212b",
    }
    flags = [
        f"--{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in options.items()
    ]
    return [sys.executable, "-m", "notsodeep_lab.explorer.server", "run", str(script), *flags]


def server_environment() -> dict[str, str]:
    """One thread of BLAS, unless the reader's own environment says otherwise."""
    # The page computes several small things at once, and threads of BLAS would take the cores from each other.
    return {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **os.environ}


def _served(command: list[str]) -> int:
    """Run until it ends or is interrupted; it never outlives this process."""
    # Asked to terminate, Python would go at once and leave the server behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    server = subprocess.Popen(command, env=server_environment())
    try:
        return server.wait()
    except KeyboardInterrupt:
        # The terminal has interrupted it too: it closes its connections and goes.
        return 0
    finally:
        _ended(server)


def _ended(server: subprocess.Popen[bytes]) -> None:
    """Wait for it to go; ask again, and then insist."""
    for ask in (server.terminate, server.kill):
        if server.poll() is None:
            ask()
        try:
            server.wait(timeout=5)
            return
        except subprocess.TimeoutExpired:
            continue


def _free_port(address: str, wanted: int | None) -> int:
    if wanted is not None:
        if not _is_free(address, wanted):
            raise InputError(
                f"Port {wanted} of {address} is taken by another program. Choose another one with --port, or leave it "
                "out."
            )
        return wanted
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
            f"There is no address {address!r} on this machine. Use localhost, or 0.0.0.0 for all of its addresses."
        ) from None
    except OSError:
        return False
    return True
