"""Commands of the laboratory, as functions that the command line takes from the entry points `notsodeep.commands`."""
