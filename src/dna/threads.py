"""How torch's threads wait for work: briefly, because emulators want the cores meanwhile.

By default a thread of OpenMP spins for milliseconds after its work is done. While it does, a
worker process that steps games waits for the core: on two cores Atari runs were 4 % slower.
Must be called before torch is loaded; who set the variable himself keeps his value.
"""

import os

#: Rounds of spinning, some tens of microseconds; the default is 300,000 or endless.
WAITING = {"GOMP_SPINCOUNT": "5000"}


def wait_briefly() -> None:
    """Set the variables that OpenMP reads when torch loads it."""
    for name, value in WAITING.items():
        os.environ.setdefault(name, value)
