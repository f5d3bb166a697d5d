"""Coverage-guided fuzzing of everything that is read from files and the command line.

`make fuzz` runs all targets; atheris (libFuzzer) chooses the inputs.
"""
