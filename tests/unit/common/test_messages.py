"""Messages of exceptions."""

import signal

import pytest

from dna.common.messages import text_of
from dna.common.process import stop_signals


class CtrlC(Exception):
    """An exception during whose message Ctrl-C is pressed twice."""

    def __str__(self):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return "too late"


class Pretends(Exception):
    """An exception whose message raises what Ctrl-C raises."""

    def __str__(self):
        raise KeyboardInterrupt


def test_a_message_is_told_from_ctrl_c():
    with stop_signals():
        text = text_of(Pretends())
        assert text == "its message cannot be shown (KeyboardInterrupt in __str__)"
        with pytest.raises(KeyboardInterrupt):
            text_of(CtrlC())
