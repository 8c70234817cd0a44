"""The process behind `notsodeep explore`: streamlit's server, kept from asking other machines for anything.

Whenever streamlit refuses a page of a foreign origin, it first asks a server of Amazon for this machine's address, and
no option prevents that. Pages of this server itself have its own origin and never come to that question.
"""

from __future__ import annotations

_ASKING = ("get_external_ip", "get_internal_ip")


def keep_to_this_machine() -> None:
    """Keep streamlit from looking for addresses of this machine.

    Raises:
        RuntimeError: if this version of streamlit looks for addresses by other functions.
    """
    from streamlit import net_util

    for name in _ASKING:
        if not callable(getattr(net_util, name, None)):
            raise RuntimeError(
                f"This version of streamlit has no net_util.{name}, so that the explorer cannot keep it from asking "
                "other machines for addresses. Install the version of constraints.txt."
            )
        setattr(net_util, name, lambda: None)


def main() -> None:
    """Run `python -m streamlit` without its requests to other machines."""
    keep_to_this_machine()
    from streamlit.web.cli import main as streamlit

    streamlit(prog_name="streamlit")


if __name__ == "__main__":
    main()
