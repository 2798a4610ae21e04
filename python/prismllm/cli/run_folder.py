"""The folder of a command's run: --run-dir, or a temporary one, which goes when all is well and stays, named in the
message, when something is not."""

from __future__ import annotations

import contextlib
import os
import shutil
import traceback
from collections.abc import Iterator

import click

from prismllm.cli.common import CommandError, Output, check_writable
from prismllm.launch import LaunchError, RunFolder
from prismllm.launch.temporary import TemporaryFolder


class RunFailed(CommandError):
    """A run that did not succeed."""

    def __init__(self, failure: LaunchError, where: str, folder: str):
        super().__init__(f"{failure}{where}", failure.exit_code)
        self.failure, self._folder = failure, folder

    def forget(self) -> None:
        """What it has left to be looked at is not needed."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


@contextlib.contextmanager
def run_folder(output: Output, what: str, log_dir: str | None = None) -> Iterator[tuple[RunFolder, str]]:
    """Yields it, made, and where logs go. What fails inside ends the command with that, and where to look."""
    temporary = None
    try:
        if log_dir:
            os.makedirs(log_dir, exist_ok=True)
            check_writable(os.path.join(log_dir, "rank0.out"), "--log-dir")
        temporary = None if output.run_dir else TemporaryFolder(what)
        # Programs may change their working directory.
        folder = RunFolder(os.path.abspath(output.run_dir or temporary.path))
        folder.create()
        logs = os.path.abspath(log_dir or folder.logs)
    except (OSError, ValueError) as reason:
        if temporary:
            temporary.remove()
        raise click.UsageError(f"the run's folder cannot be made: {reason}") from None
    keep = True
    try:
        yield folder, logs
        keep = False
    except LaunchError as failure:
        keep = failure.exit_code != 2  # wrong use: there is nothing to look at
        where = f"\n(logs of all ranks: {logs})" if keep or not temporary else ""
        raise RunFailed(failure, where, temporary.path if temporary else "") from None
    except (KeyboardInterrupt, SystemExit) as ended:
        code = ended.code if isinstance(ended, SystemExit) else 130
        raise CommandError(f"ended by a signal (fragments and logs are kept in {folder.path})", code) from None
    except Exception as failure:
        with contextlib.suppress(OSError), open(os.path.join(folder.path, "error.txt"), "w") as log:
            traceback.print_exc(file=log)
        raise CommandError(f"{failure} (fragments and logs are kept in {folder.path})", 4) from None
    finally:
        folder.close()
        if temporary:
            temporary.keep() if keep else temporary.remove()
