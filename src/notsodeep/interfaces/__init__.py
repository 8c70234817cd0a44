"""What people look at and type: the command line, report pages, and the explorer in a browser."""
