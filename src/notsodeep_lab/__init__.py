"""The laboratory of notsodeep: experiments of the papers (`notsodeep reproduce`), their report, and the explorer.

It stands on the library `notsodeep`, which never imports it: its commands reach the command line through the entry
points `notsodeep.commands` of pyproject.toml. Its dependencies are the extra `lab`.
"""
