"""Git commit and uncommitted changes of a sweep's code."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

GIT_COMMIT = "mlflow.source.git.commit"
GIT_BRANCH = "mlflow.source.git.branch"
GIT_REPO_URL = "mlflow.source.git.repoURL"
GIT_DIRTY_TAG = "tune_tf.git_dirty"

_TIMEOUT_S = 20.0
_MAX_DIFF_BYTES = 256 * 1024


@dataclass(frozen=True)
class Repository:
    """Git repository of a sweep's code.

    Args:
        folder: Any folder in the repository.
    """

    folder: Path

    @classmethod
    def of(cls, script: str, working_dir: Path, installed: Path) -> "Repository | None":
        """Return the repository of a script, else of the working directory; None without one.

        An installed script, such as the ``tune-tf`` command, is ignored: it is not the user's code.

        Args:
            script: Path of the started script; empty or ``-c`` in an interactive Python.
            working_dir: The working directory.
            installed: Prefix of the Python installation.
        """
        path = (working_dir / script).resolve()
        folders = [working_dir]
        if path.is_file() and not path.is_relative_to(installed.resolve()):
            folders.insert(0, path.parent)
        for folder in folders:
            repository = cls(folder)
            if repository._ask("rev-parse", "--is-inside-work-tree") == "true":
                return repository
        return None

    @classmethod
    def of_this_process(cls) -> "Repository | None":
        """Return the repository of this process's script or working directory."""
        return cls.of(sys.argv[0] if sys.argv else "", Path.cwd(), Path(sys.prefix))

    def tags(self) -> dict[str, str]:
        """Return the known Git tags of a run."""
        tags: Mapping[str, str | None] = {
            GIT_COMMIT: self._ask("rev-parse", "HEAD"),
            GIT_BRANCH: self._ask("symbolic-ref", "--short", "HEAD"),
            GIT_REPO_URL: self._ask("config", "--get", "remote.origin.url"),
        }
        known = {name: value for name, value in tags.items() if value}
        changes = self._ask("status", "--porcelain", "--untracked-files=no")
        if GIT_COMMIT in known and changes is not None:
            known[GIT_DIRTY_TAG] = str(bool(changes)).lower()
        return known

    def diff(self) -> str:
        """Return the uncommitted changes of tracked files as a diff.

        A diff over 256 KiB is truncated with a note at its end.
        """
        text = self._ask("diff", "HEAD", "--no-color", "--no-ext-diff", strip=False) or ""
        if len(text) > _MAX_DIFF_BYTES:
            kept = text[:_MAX_DIFF_BYTES].rpartition("\n")[0]
            return f"{kept}\n# cut here: {len(text) - len(kept)} more characters of the diff\n"
        return text

    def _ask(self, *command: str, strip: bool = True) -> str | None:
        """Return Git's output; None if Git fails, is missing or times out."""
        try:
            answer = subprocess.run(  # noqa: S603 - a fixed command
                ["git", "-C", str(self.folder), *command],  # noqa: S607 - the user's git
                capture_output=True,
                check=True,
                timeout=_TIMEOUT_S,
                env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            )
        except (OSError, subprocess.SubprocessError):
            return None
        text = answer.stdout.decode(errors="replace")
        return text.strip() if strip else text
