"""`python -m notsodeep`."""

from notsodeep.interfaces.cli.entry import main

if __name__ == "__main__":
    main()
