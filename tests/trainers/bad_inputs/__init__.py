"""What users may get wrong: flags and files, and the line that they then read; a row each."""
