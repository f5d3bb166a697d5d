"""Threads that share lists of items: order, errors, nesting, forks, and the end of threads."""

import copy
import gc
import os
import pickle  # noqa: TID251
import subprocess
import sys
import threading
import time

import pytest

from dna.common.threads import ONE_THREAD, Workers


@pytest.fixture(params=[1, 2, 5])
def workers(request):
    made = Workers(request.param)
    yield made
    made.close()


def test_results_are_in_the_order_of_the_items(workers):
    def slow_first(number):
        time.sleep(0.002 * (10 - number))
        return number * number

    assert workers.map(slow_first, range(10)) == [n * n for n in range(10)]
    assert workers.map(slow_first, []) == []


def test_threads_work_at_the_same_time():
    workers = Workers(3)
    meeting = threading.Barrier(3, timeout=10)
    names = workers.map(
        lambda _: meeting.wait() >= 0 and threading.current_thread().name, "abc"
    )
    assert len(set(names)) == 3
    assert threading.current_thread().name in names


def test_the_first_item_that_fails_is_the_error_whichever_fails_first(workers):
    seen = []

    def fail(number):
        seen.append(number)
        time.sleep(0.02 if number == 1 else 0)
        if number in (1, 3):
            raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        workers.map(fail, range(4))
    assert workers.threads == 1 or sorted(seen) == [0, 1, 2, 3]
    assert workers.map(str, range(3)) == ["0", "1", "2"]  # still usable


def test_items_may_share_their_own_items(workers):
    def outer(number):
        return sum(workers.map(lambda inner: number * inner, range(20)))

    assert workers.map(outer, range(8)) == [n * 190 for n in range(8)]


def test_who_waits_takes_no_older_item():
    """A long item, such as a whole phase, must not delay one that waits for its own pieces."""
    workers = Workers(2)
    here = threading.local()
    nested = []

    def outer(number):
        nested.append(getattr(here, "inside", False))
        here.inside = True
        workers.map(lambda piece: time.sleep(0.005 * piece), [1, number, 1])
        here.inside = False

    workers.map(outer, range(12))
    assert nested == [False] * 12


def test_a_forked_copy_works_alone():
    workers = Workers(3)
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(sink, b"yes" if workers.map(abs, [-1, -2, -3]) == [1, 2, 3] else b"no")
        os._exit(0)
    os.close(sink)
    assert os.read(source, 10) == b"yes"
    os.close(source)
    assert os.waitpid(child, 0)[1] == 0


def test_threads_end_when_nothing_refers_to_them():
    def others():
        return {t for t in threading.enumerate() if t.name.startswith("worker ")} - before

    before = set(threading.enumerate())  # those of other tests may end meanwhile
    workers = Workers(4)
    workers.map(abs, range(10))
    assert len(others()) == 3
    del workers
    gc.collect()
    end = time.monotonic() + 10
    while others() and time.monotonic() < end:
        time.sleep(0.01)
    assert not others()


def test_each_thread_begins_as_it_is_told():
    begun = []
    workers = Workers(3, lambda: begun.append(threading.current_thread().name))
    workers.map(lambda _: time.sleep(0.01), range(10))
    assert sorted(begun) == ["worker 1", "worker 2"]


INTERRUPTED = """
import signal, sys, threading, time
import torch
from dna.common.threads import Workers

workers = Workers(3, lambda: torch.set_num_threads(1))
big = torch.rand(1500, 1500)
done = []

def work(number):
    for _ in range(3):
        big @ big
    done.append(number)

signal.setitimer(signal.ITIMER_REAL, 0.3)
signal.signal(signal.SIGALRM, signal.default_int_handler)
try:
    while True:
        workers.map(work, range(50))
except KeyboardInterrupt:
    before = len(done)
    time.sleep(0.3)
    sys.exit(130 if len(done) == before else 1)
"""


def test_an_interrupt_stops_all_threads_before_it_is_raised():
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True)
    assert (ended.returncode, ended.stderr) == (130, b"")


def test_an_interrupt_inside_an_item_leaves_out_what_nobody_has_begun():
    workers = Workers(2)
    begun = []

    def work(number):
        begun.append(number)
        if number == 1:
            raise KeyboardInterrupt
        time.sleep(0.02)

    with pytest.raises(KeyboardInterrupt):
        workers.map(work, range(100))
    assert len(begun) < 10
    assert workers.map(abs, [-1, -2]) == [1, 2]


def test_stored_networks_come_back_on_one_thread():
    assert pickle.loads(pickle.dumps(Workers(3))).threads == 1  # noqa: S301


def test_copies_of_what_uses_threads_share_them():
    workers = Workers(2)
    assert copy.deepcopy({"workers": workers})["workers"] is workers


def test_one_thread_is_the_one_that_asks():
    names = ONE_THREAD.map(lambda _: threading.current_thread().name, range(3))
    assert set(names) == {threading.current_thread().name}
