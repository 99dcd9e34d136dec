"""Runs a program under memopt's launcher and job control only: ``python launcher.py PROGRAM [ARGUMENTS]``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from memopt.console import say
from runtime.launch.identify import CannotRun, identify
from runtime.launch.jobcontrol import leave, wait_to_end
from runtime.launch.launch import launch, release_inherited_files

if __name__ == "__main__":
    try:
        supervisor = launch(identify(sys.argv[1], os.environ.get("PATH")), sys.argv[1:]).supervisor
        release_inherited_files()
        value = wait_to_end(supervisor)
    except CannotRun as error:
        say(str(error))
        value = error.exit_code
    leave(value)
