"""How texcat is driven: commands, progress, exit codes. No logic of its own."""
