"""`dna report` and `dna watch` as a user meets them."""

import http.client
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from html.parser import HTMLParser

import pytest

from dna.cli import main
from dna.paper.experiments import ALSO, EXPERIMENTS, experiment
from dna.paper.plan import Limits
from dna.paper.reproduce import folder_of, write_all
from dna.paper.results import Results
from made_up import made

#: In one process: tests look at the runs, and at the server, of the fixtures.
pytestmark = pytest.mark.xdist_group("report")
VOID = {"meta", "link", "br", "img"}


class Outline(HTMLParser):
    """Checks that elements are closed in order, and keeps what there is."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.ids += [named["id"]] if "id" in named else []
        self.links += [named[key] for key in ("src", "href") if key in named]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)


def outline(text):
    found = Outline()
    found.feed(text)
    found.close()
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two seeds of a small run that measures its noise, evaluated."""
    folder = tmp_path_factory.mktemp("report") / "runs"
    words = ["train", "CartPole-v1", "--interactions", "6000", "--noise", "--quiet"]
    for seed in ("0", "1"):
        path = str(folder / f"seed{seed}")
        assert main([*words, "--seed", seed, "--out", path, "noise.every=1"]) == 0
    first = str(folder / "seed0")
    assert main(["eval", first, "--episodes", "3", "--random"]) == 0
    return folder


def test_a_report_of_one_run_lies_in_its_folder(trained, capsys):
    run = trained / "seed0"
    assert main(["report", str(run)]) == 0
    assert str(run / "report.html") in capsys.readouterr().out
    page = outline((run / "report.html").read_text())
    sections = {"learning", "evaluation", "phases", "noise", "time", "settings", "machine"}
    assert sections | {"runs", "checkpoints"} <= set(page.ids)
    assert "films" not in page.ids
    words = " ".join(page.text)
    for said in ("DNA on CartPole-v1", "policy/entropy", "distil/kl", "random agent"):
        assert said in words
    for said in ("noise/…/sigma", "interactions per second", "cartpole.dna", "finished"):
        assert said in words
    assert all(link.startswith(("#", "data:")) for link in page.links)


def test_seeds_are_put_together(trained, tmp_path):
    out = tmp_path / "both.html"
    assert (
        main(["report", str(trained / "seed0"), str(trained / "seed1"), "--out", str(out)]) == 0
    )
    text = out.read_text()
    assert "mean of 2 seeds" in text
    assert len(text) < 600_000
    outline(text)
    other = tmp_path / "folder.html"
    assert main(["report", str(trained), "--out", str(other)]) == 0
    assert other.read_text() == text


def test_a_film_is_put_inside(trained, tmp_path):
    run = trained / "seed1"
    film = run / "episode.mp4"
    assert main(["record", str(run), "--out", str(film)]) == 0
    assert main(["report", str(run), "--out", str(tmp_path / "a.html")]) == 0
    film.unlink()
    page = outline((tmp_path / "a.html").read_text())
    assert "films" in page.ids
    assert any(link.startswith("data:video/mp4;base64,") for link in page.links)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{tmp}/nothing"], 2, "no run here"),
        (["{run}", "--out", "{tmp}/a.txt"], 2, "must end in .html"),
        (["{damaged}"], 6, "metrics.jsonl: line 1 is not a row of numbers"),
        (["{experiment}", "{run}"], 2, "an experiment has its own page"),
    ],
)
def test_what_cannot_be_reported_is_one_line(trained, tmp_path, capsys, words, code, said):
    run, damaged, experiment = trained / "seed0", tmp_path / "damaged", tmp_path / "exp"
    damaged.mkdir()
    (damaged / "config.json").write_bytes((run / "config.json").read_bytes())
    (damaged / "metrics.jsonl").write_bytes(b"\x00\xff\n")
    experiment.mkdir()
    (experiment / "experiment.json").write_text('{"name": "x", "title": "y"}')
    names = {"tmp": tmp_path, "run": run, "damaged": damaged, "experiment": experiment}
    capsys.readouterr()
    assert main(["report", *(word.format(**names) for word in words)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1
    assert not (damaged / "report.html").exists()


@pytest.mark.parametrize("one", EXPERIMENTS, ids=lambda one: one.alias)
def test_an_experiment_is_reported_by_any_of_its_names(one, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = [one.name, one.alias, *(name for name in ALSO if experiment(name) is one)]
    for name in names:
        assert main(["report", name]) == 2
        error = capsys.readouterr().err
        assert "`dna reproduce " in error
        assert len(error.splitlines()) == 1
    folder = tmp_path / "reproductions" / f"{one.name}-small"
    write_all(Results(one, "small", ()), folder, {})
    for name in names:
        assert main(["report", name, "--out", f"{name}.html"]) == 0
        assert one.title in (tmp_path / f"{name}.html").read_text().replace("&#x27;", "'")


def test_the_newest_of_an_experiments_folders_is_taken(tmp_path, capsys):
    one = experiment("toy")
    for scale, limits in (("small", Limits()), ("smoke", Limits()), ("small", Limits(2))):
        folder = folder_of(one, scale, tmp_path, limits)
        write_all(Results(one, scale, (), limits=limits), folder, {})
    assert main(["report", "toy", "--reproductions", str(tmp_path)]) == 0
    assert "fig01-small-2seeds/report.html" in capsys.readouterr().out


def test_a_page_says_what_was_shortened_and_what_lacks(tmp_path):
    write_all(made("mujoco", "small", lambda run: run.arm != "PPO"), tmp_path / "e", {})
    assert main(["report", str(tmp_path / "e")]) == 0
    page = (tmp_path / "e" / "report.html").read_text()
    assert "shortened: 3 of 30 seeds" in page
    assert "not finished: mujoco: PPO (24 of 24 runs)" in page


class Watching:
    """`dna watch` in a process of its own."""

    def __init__(self, folder):
        words = [sys.executable, "-m", "dna", "watch", str(folder)]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", line).group(1))

    def ask(self, path="/", method="GET", headers=None):
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        link.request(method, path, headers=headers or {})
        answer = link.getresponse()
        text = answer.read().decode()
        link.close()
        return answer, text

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=30)
        return self.process.returncode, err


@pytest.fixture(scope="module")
def watching(trained):
    found = Watching(trained / "seed0")
    yield found
    assert found.stop() == (0, "")


def test_the_live_page_is_served_to_this_machine_only(watching):
    answer, text = watching.ask()
    assert answer.status == 200
    assert "connect-src &#x27;self&#x27;" in text
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Python" not in (answer.headers["Server"] or "")
    outline(text)


ANSWERED = ("127.0.0.1", "localhost", "LOCALHOST", "[::1]")
REFUSED = (
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "evil.example:80@localhost",
    "127x0x0x1",
    "::1",
    "",
)


@pytest.mark.parametrize("port", ["", ":9000", ":{own}"])
def test_only_this_machines_names_are_answered_under_any_port(watching, port):
    port = port.format(own=watching.port)
    hosts = {name + port: 200 for name in ANSWERED} | {name + port: 403 for name in REFUSED}
    for host, status in hosts.items():
        assert watching.ask("/data", headers={"Host": host})[0].status == status, host


def test_a_port_is_a_number(watching):
    for port in (":", ":x", ":9000x", ":-1", ":9000:9000", ":123456"):
        answer, _ = watching.ask("/", headers={"Host": f"localhost{port}"})
        assert answer.status == 403, port


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 403),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 403),
        (b"GET http://[/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://[/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
    ],
    ids=range(5),
)
def test_a_strange_request_is_refused_and_nothing_is_printed(watching, request_, status):
    with socket.create_connection(("127.0.0.1", watching.port), timeout=30) as link:
        link.sendall(request_)
        link.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: link.recv(65536), b""))
    assert re.match(rb"HTTP/1\.\d (\d+)", answer)[1] == str(status).encode()


def test_a_reader_who_hangs_up_is_not_worth_a_word(watching):
    for words in (b"GE", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        link = socket.create_connection(("127.0.0.1", watching.port), timeout=30)
        link.sendall(words)
        # Closed with a reset, not an end: reading and writing both fail there.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        link.close()
    assert watching.ask()[0].status == 200  # and `watching` looks for words at its end


def test_no_file_is_behind_the_live_page(watching):
    for path in ("/config.json", "/../etc/passwd", "/data/x", "/data/", "/%2e"):
        answer, text = watching.ask(path)
        assert answer.status == 404, path
        assert text == "404 Not found\n", path


def test_the_live_page_can_only_be_read(watching):
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"):
        assert watching.ask("/", method)[0].status == 405, method


def test_only_what_changed_is_sent(watching):
    first = json.loads(watching.ask("/data")[1])
    assert first["state"] == "finished"
    assert all("html" in part for part in first["parts"])
    have = ".".join(part["hash"] for part in first["parts"])
    second = json.loads(watching.ask(f"/data?have={have}")[1])
    assert not any("html" in part for part in second["parts"])


def test_a_damaged_toy_problem_is_one_line(tmp_path, capsys):
    extra = {"toy": {"table": [], "verdicts": {"C006": "held"}}}
    tree = {"name": "fig01", "title": "Toy", "scale": "small", "extra": extra, "verdicts": []}
    (tmp_path / "experiment.json").write_text(json.dumps(tree))
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "toy.html")]) == 6
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "experiment.json: not an experiment (extra.toy.verdicts.C006" in line


def test_a_port_that_is_taken_is_one_line(watching, trained, capsys):
    capsys.readouterr()
    assert main(["watch", str(trained / "seed0"), "--port", str(watching.port)]) == 2
    assert capsys.readouterr().err.startswith(f"dna: --port {watching.port}: ")


def test_the_live_page_follows_a_run(tmp_path):
    run = tmp_path / "run"
    words = [sys.executable, "-m", "dna", "train", "CartPole-v1", "--quiet", "--out", str(run)]
    training = subprocess.Popen([*words, "--interactions", "30000"])
    try:
        until(lambda: (run / "metrics.jsonl").is_file())
        watching = Watching(run)
        seen, states = set(), set()

        def look():
            news = json.loads(watching.ask("/data")[1])
            states.add(news["state"])
            head = next(part["html"] for part in news["parts"] if part["id"] == "head")
            seen.add(re.search(r"interactions</p><strong>([^<]*)", head).group(1))
            return news["state"] == "finished"

        until(look)
        assert {"training", "finished"} <= states
        assert len(seen) >= 3
        assert watching.stop() == (0, "")
    finally:
        training.kill()
        training.wait()


def until(good, seconds=120):
    end = time.monotonic() + seconds
    while not good():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)
