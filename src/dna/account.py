"""`machine.json`: on what a run runs, how it was asked for, whether it is exact."""

from typing import Any

import torch

from dna.folder import RunFolder
from dna.machine import describe, setting
from dna.setup import How


class Account:
    """Written whenever it changes; of several ranks, by the first."""

    def __init__(
        self, folder: RunFolder, how: How, device: torch.device, packages: tuple[str, ...]
    ) -> None:
        """`packages`: distributions that the environments come from."""
        self.folder, self.how, self.device, self.packages = folder, how, device, packages
        self.facts: dict[str, Any] = {}

    def begin(self, resumes: int, steps: int) -> None:
        """The machine, and what it was asked for; written with what can change."""
        ranks = self.how.world.size
        self.facts = describe(self.device, self.how.env_threads, ranks, self.packages)
        self.facts |= {"resumes": resumes, "warm_up_steps": steps, "asked": self.how.asked()}

    def tell(self, inexact: list[str], compiled: list[str]) -> None:
        """What can change while a run runs: why it is not exact, how its phases compute."""
        facts = self.facts | {"exact": not inexact, "why_not_exact": inexact}
        facts |= {"compiled": compiled}
        if self.how.world.rank == 0 and facts != self.facts:
            self.folder.write_machine(facts)
        self.facts = facts

    def setting(self, compiled: list[str]) -> dict[str, Any]:
        """What the last bits depend on, for a checkpoint to remember."""
        ranks = self.how.world.size
        found = setting(self.device, self.packages) | {"compiled": compiled}
        return found | ({"ranks": ranks} if ranks > 1 else {})
