"""Commands of the laboratory, registered by the entry points `notsodeep.commands`."""
