"""The laboratory of notsodeep: experiments of the papers (`notsodeep reproduce`).

It uses the library `notsodeep`, which never imports it: its commands are registered by the entry points
`notsodeep.commands` of pyproject.toml. Its dependencies are the extra `lab`.
"""
