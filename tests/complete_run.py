"""A test run that lost tests on the way is no green run: pytest's exit status says so.

A process of pytest-xdist that dies takes the tests with it that it had not run; an error inside
pytest ends a run early. Which tests were reported is compared with which were collected.
"""

import json
import os
from pathlib import Path

import pytest

MISSING = pytest.StashKey[list[str]]()
NOT_ALLOWED = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run demand that nothing is skipped."""
    parser.addoption("--no-skips", action="store_true", help="a skipped test fails the run")


def pytest_configure(config: pytest.Config) -> None:
    """See to it that no test is lost; the environment may name a file for the outcome."""
    if not hasattr(config, "workerinput"):
        report = os.environ.get("TUNE_TF_TEST_REPORT")
        may_skip = not config.getoption("--no-skips")
        complete = CompleteRun(Path(report) if report else None, may_skip=may_skip)
        config.pluginmanager.register(complete)


class CompleteRun:
    """Compares the tests that were reported with those that were collected.

    Args:
        report: A JSON file for the outcome, or None.
        may_skip: Whether tests may be skipped, for want of a package, say.
    """

    def __init__(self, report: Path | None = None, *, may_skip: bool = True) -> None:
        self._report = report
        self._may_skip = may_skip
        self._collected: set[str] = set()
        self._reported: set[str] = set()
        self._failed: set[str] = set()
        self._skipped: dict[str, str] = {}
        self._seconds: dict[str, float] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note what is to be run by this process."""
        self._collected.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Note what is to be run by another process."""
        self._collected.update(ids)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that is skipped as a whole."""
        if report.skipped:
            self._skipped[report.nodeid] = str(report.longrepr)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what became of a test."""
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self._failed.add(report.nodeid)
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped[report.nodeid] = str(report.longrepr)
        if report.when in ("teardown", "???"):  # the latter of a test whose process died
            self._reported.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail a run in which tests are missing."""
        lost = sorted(self._collected - self._reported)
        if session.config.getoption("maxfail") or session.config.getoption("collectonly"):
            lost = []  # it was not to run them all
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and lost:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
            session.config.stash[MISSING] = lost
        elif exitstatus == pytest.ExitCode.OK and self._skipped and not self._may_skip:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            session.config.stash[NOT_ALLOWED] = self._skipped
        if self._report is not None:
            told = {
                "collected": len(self._collected),
                "lost": lost,
                "failed": sorted(self._failed - set(lost)),
                "skipped": self._skipped,
                "seconds": self._seconds,
            }
            self._report.parent.mkdir(parents=True, exist_ok=True)
            self._report.write_text(json.dumps(told, indent=1))

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        """Name the tests that are missing, and those that were skipped though none may be."""
        for test in config.stash.get(MISSING, []):
            terminalreporter.write_line(f"LOST {test}", red=True)
        for test, reason in config.stash.get(NOT_ALLOWED, {}).items():
            terminalreporter.write_line(f"SKIPPED {test}: {reason}", red=True)
