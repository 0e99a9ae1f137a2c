import os

import pytest

from tune_tf.record import TrialLog, log_path, mask_log
from tune_tf.record.trial_log import log_text


@pytest.fixture
def stream(tmp_path):
    """A file that stands for the stdout of a process."""
    file = os.open(tmp_path / "stdout", os.O_WRONLY | os.O_CREAT)
    yield file
    os.close(file)


def test_each_trial_gets_what_is_written_while_it_is_served(stream, tmp_path):
    log = TrialLog(streams=(stream,))
    os.write(stream, b"before\n")
    for name in ("a", "b", "a"):
        log.begin(log_path(tmp_path, name))
        os.write(stream, f"during {name}\n".encode())
    log.end()
    os.write(stream, b"after\n")
    assert (tmp_path / "a" / "log.txt").read_text() == "during a\nduring a\n"
    assert (tmp_path / "b" / "log.txt").read_text() == "during b\n"
    assert (tmp_path / "stdout").read_text() == "before\nafter\n"


def test_a_log_that_cannot_be_written_is_a_warning_and_the_stream_stays(stream, tmp_path, caplog):
    log = TrialLog(streams=(stream,))
    log.begin(tmp_path / "nowhere" / "trial_00000" / "log.txt")
    os.write(stream, b"here\n")
    log.end()
    assert "the trial has no log" in caplog.text
    assert (tmp_path / "stdout").read_text() == "here\n"


@pytest.mark.parametrize(
    ("tail", "text"), [(None, b"1\n2\n3\n4"), (2, b"3\n4"), (0, b""), (9, b"1\n2\n3\n4")]
)
def test_a_log_is_read_from_its_last_lines(tmp_path, tail, text):
    path = tmp_path / "log.txt"
    path.write_bytes(b"1\n2\n3\n4")
    assert b"".join(log_text(path, last_lines=tail, wait=pytest.fail)) == text


def test_a_log_is_followed_until_the_trial_is_over(tmp_path):
    path = tmp_path / "log.txt"
    steps = iter([lambda: path.write_bytes(b"a\n"), lambda: path.write_bytes(b"a\nb\n")])
    ends = iter([False, False, True])
    chunks = list(log_text(path, is_over=lambda: next(ends), wait=lambda seconds: next(steps)()))
    assert chunks == [b"a\n", b"b\n"]


def test_secrets_in_a_log_are_masked_even_if_a_line_arrives_in_parts(tmp_path, monkeypatch):
    monkeypatch.setenv("PLANTED_API_TOKEN", "planted-t0ken")
    path = tmp_path / "log.txt"
    path.write_bytes(b"\xff first plant")
    parts = iter([b"ed-t0ken at http://ann:pw@h/\nlast", None])

    def is_over():
        part = next(parts)
        if part is not None:
            path.write_bytes(path.read_bytes() + part)
        return part is None

    shown = b"".join(log_text(path, is_over=is_over, wait=lambda seconds: None))
    assert shown == b"\xff first *** at http://ann:***@h/\nlast"


def test_secrets_are_masked_in_a_log_that_is_still_written_to(tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes(b"one s3cret\n\xff s3cret-longer, s3cret\nlast")
    with path.open("ab", buffering=0) as writer:
        mask_log(path, {"s3cret", "s3cret-longer"})
        writer.write(b" word")
    assert path.read_bytes() == b"one ******\n\xff *************, ******\nlast word"
    mask_log(tmp_path / "missing.txt", {"s3cret"})
    mask_log(path, ())
