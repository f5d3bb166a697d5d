"""The files of a run that grow: logs and event files, kept by its first rank."""

from pathlib import Path

from dna.config import Config
from dna.runs.metrics import Files, Sink
from dna.runs.trackers import TensorBoard


class Journal:
    """Nothing until it is opened; on all ranks but the first, nothing ever."""

    def __init__(self, folder: Path, config: Config, seed: int, *, tensorboard: bool) -> None:
        self.folder, self.config, self.seed, self.tensorboard = (
            folder,
            config,
            seed,
            tensorboard,
        )
        self.files: Files | None = None
        self.board: TensorBoard | None = None

    def open(self, lengths: dict[str, int] | None, interactions: int) -> list[str]:
        """Begin, or go on from a checkpoint's lengths; what somebody has cut short since."""
        self.files = Files(self.folder, lengths)
        if self.tensorboard:
            words = (self.folder, self.config, self.seed, lengths or {}, interactions)
            self.board = TensorBoard(*words)
        return [line for sink in self._sinks() for line in sink.missing()]

    def changed(self) -> list[str]:
        """What somebody has cut or written to since this was last asked."""
        return [line for sink in self._sinks() for line in sink.changed()]

    def _sinks(self) -> "list[Files | TensorBoard]":
        return [sink for sink in (self.files, self.board) if sink is not None]

    @property
    def sinks(self) -> list[Sink]:
        """What is to be told of every iteration."""
        return [*self._sinks()]

    def sync(self) -> dict[str, int]:
        """Everything on disk; the lengths a checkpoint remembers."""
        lengths = self.files.sync() if self.files else {}
        return lengths | (self.board.sync() if self.board else {})
