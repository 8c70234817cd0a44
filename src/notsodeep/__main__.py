"""`python -m notsodeep`."""

from notsodeep.cli.entry import main

if __name__ == "__main__":
    main()
