"""The server of `notsodeep explore`: streamlit without requests to other machines.

When streamlit rejects a page of a foreign origin, it asks an Amazon server for the address of this machine, and no
option prevents that. Pages of this server itself have its own origin, so that this is never necessary.
"""

from __future__ import annotations

_ASKING = ("get_external_ip", "get_internal_ip")


def keep_to_this_machine() -> None:
    """Keep streamlit from looking up addresses of this machine.

    Raises:
        RuntimeError: if this version of streamlit looks up addresses with other functions.
    """
    from streamlit import net_util

    for name in _ASKING:
        if not callable(getattr(net_util, name, None)):
            raise RuntimeError(
                f"This version of streamlit has no net_util.{name}: the explorer cannot keep it from contacting other "
                "machines. Install the version in constraints.txt."
            )
        setattr(net_util, name, lambda: None)


def main() -> None:
    """Run `python -m streamlit` without its requests to other machines."""
    keep_to_this_machine()
    from streamlit.web.cli import main as streamlit

    streamlit(prog_name="streamlit")


if __name__ == "__main__":
    main()
