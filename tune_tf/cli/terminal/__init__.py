"""Terminal output of the command line: tables, progress, states."""
