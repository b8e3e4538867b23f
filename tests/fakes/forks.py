"""Child pytest runs and xdist workers as forks of one process that has imported everything already.

A new Python that imports pytest, the plugin and the client costs seconds of CPU time, a fork next to nothing. A fork is
a process like any other: it has its own pipes, environment, folder, signals, process group and exit code.
What depends on how a process begins is tested on new ones, in an environment without `ADDRESS`.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from execnet.gateway_io import popen_bootstrapline

__all__ = ["ADDOPTS", "ADDRESS", "ForkedPopen", "forked_commands", "forking"]

ADDRESS = "SPIRAL_TESTS_FORK_SERVER"
"""Environment variable with the socket of the server that forks. In an environment without it, processes are new."""

# Other people's plugins cost half a second a run; the tests that want one ask for it. The last one collects all garbage
# of this process at the end of every run in it, which the run around it does anyway.
_LEFT_OUT = ("hypothesispytest", "randomly", "anyio", "syrupy", "timeout", "rerunfailures", "unraisableexception")
ADDOPTS = " ".join(f"-p no:{name}" for name in _LEFT_OUT)
"""Options of every run inside a test."""

_PYTEST = (sys.executable, "-m", "pytest")
_WORKER = (sys.executable, "-u", "-c", popen_bootstrapline)
_NEW_POPEN = subprocess.Popen
_STARTS: dict[str, Callable[[], None]] = {}


@contextmanager
def forking(environ: Mapping[str, str]) -> Iterator[str]:
    """Gives the address for `ADDRESS` of a server that starts in this environment when it is first needed."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fork-"))
        address = str(Path(folder, "s"))

        def start() -> None:
            ready, done = os.pipe()
            server = _NEW_POPEN(
                [sys.executable, "-c", "from tests.fakes.forks import _serve; _serve()", address, str(done)],
                # It ends when this process does.
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                cwd=folder,
                env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {**environ},
                pass_fds=[done],
                process_group=0,
            )
            stack.enter_context(server)
            os.close(done)
            with os.fdopen(ready, "rb") as said:
                assert said.read() == b"ready"

        _STARTS[address] = start
        yield address
        _STARTS.pop(address, None)


def _start(address: str) -> None:
    """Start the server of this address unless it runs already."""
    if start := _STARTS.pop(address, None):
        start()


def forked_commands(folder: Path, address: str) -> None:
    """Write `python` and `pytest-spiral` for scripts of a shell: they have pytest and the console script forked."""
    _start(address)
    for name in ("python", "pytest-spiral"):
        (folder / name).write_text(f"#!{sys.executable} -IS\n{_COMMAND}")
        (folder / name).chmod(0o755)


_COMMAND = f"""\
import json, os, socket, sys
command = [sys.executable, *sys.argv[1:]]
if os.path.basename(sys.argv[0]) == "pytest-spiral":
    code = f"import sys; sys.argv = {{sys.argv!r}}; from pytest_spiral.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code]
elif command[1:3] != ["-m", "pytest"]:
    os.execv(sys.executable, command)
with socket.socket(socket.AF_UNIX) as answers:
    answers.connect(os.environ["{ADDRESS}"])
    request = {{"command": command, "environ": dict(os.environ), "folder": os.getcwd(), "group": os.getpgrp()}}
    body = json.dumps(request).encode()
    socket.send_fds(answers, [len(body).to_bytes(4)], [0, 1, 2])
    answers.sendall(body)
    answers.recv(4, socket.MSG_WAITALL)
    status = int.from_bytes(answers.recv(4, socket.MSG_WAITALL))
sys.exit(os.waitstatus_to_exitcode(status))
"""


class ForkedPopen(subprocess.Popen[Any]):
    """`subprocess.Popen` that has pytest and workers of xdist forked, and everything else started as ever.

    The methods are those in which `subprocess` itself deals with the operating system; they are its own, not public.
    """

    _answers: socket.socket | None = None

    def _execute_child(self, *arguments: Any) -> None:
        parent: Any = super()
        names = inspect.signature(parent._execute_child).bind(*arguments).arguments
        environ = os.environ if names["env"] is None else names["env"]
        command = tuple(names["args"]) if isinstance(names["args"], (list, tuple)) else ()
        forked = ADDRESS in environ and (command[:3] == _PYTEST or command == _WORKER)
        if not forked or names["preexec_fn"]:
            parent._execute_child(*arguments)
            return
        given = (names["p2cread"], names["c2pwrite"], names["errwrite"])
        handles = [standard if handle == -1 else handle for standard, handle in enumerate(given)]
        group = names.get("process_group", -1)
        request = {
            "command": command,
            "environ": dict(environ),
            "folder": os.fspath(names["cwd"] or Path.cwd()),
            "group": os.getpgrp() if group in (None, -1) else group,
        }
        _start(environ[ADDRESS])
        self._answers = socket.socket(socket.AF_UNIX)
        self._answers.connect(environ[ADDRESS])
        body = json.dumps(request).encode()
        socket.send_fds(self._answers, [len(body).to_bytes(4)], handles)
        self._answers.sendall(body)
        self.pid = int.from_bytes(_exactly(self._answers, 4))
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        parent._close_pipe_fds(*(names[end] for end in ends))

    def _try_wait(self, flags: int) -> tuple[int, int]:
        parent: Any = super()
        if self._answers is None:
            result: tuple[int, int] = parent._try_wait(flags)
            return result
        try:
            status = _exactly(self._answers, 4, socket.MSG_DONTWAIT if flags & os.WNOHANG else 0)
        except BlockingIOError:
            return 0, 0
        self._answers.close()
        return self.pid, int.from_bytes(status)

    def _internal_poll(self, *arguments: Any, **options: Any) -> int | None:
        parent: Any = super()
        if self._answers is None:
            result: int | None = parent._internal_poll(*arguments, **options)
            return result
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                parent._handle_exitstatus(status)
        return self.returncode

    def __del__(self, *arguments: Any) -> None:
        if self._answers is not None:
            self._answers.close()
        else:
            super().__del__(*arguments)


def _exactly(connection: socket.socket, size: int, flags: int = 0) -> bytes:
    """So many bytes, or none where there are none yet."""
    data = connection.recv(size, flags)
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the process that forks has ended")
        data += more
    return data


def _serve() -> None:
    """Import what runs need, then fork one process for each request."""
    address, ready = sys.argv[1], int(sys.argv[2])
    _warm_up()
    gc.collect()
    # Forks share the pages of what is here, as long as nobody writes to them.
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    # A thread would be missing in a fork, and what it held locked would stay so.
    assert threading.active_count() == 1, threading.enumerate()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())
    waiting: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        for source in (listener, woken, sys.stdin):
            selector.register(source, selectors.EVENT_READ)
        os.write(ready, b"ready")
        os.close(ready)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is woken:
                    woken.recv(4096)
                    _tell_ends(waiting)
                    continue
                connection, _ = listener.accept()
                size, handles, _, _ = socket.recv_fds(connection, 4, 3)
                request = json.loads(_exactly(connection, int.from_bytes(size)))
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for other in (listener, woken, wake, connection, *waiting.values()):
                        other.close()
                    selector.close()
                    _become(handles, **request)
                    return
                for handle in handles:
                    os.close(handle)
                waiting[pid] = connection
                connection.sendall(pid.to_bytes(4))


def _tell_ends(waiting: dict[int, socket.socket]) -> None:
    """Tell whoever asked for a process that it has ended."""
    while waiting:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with waiting.pop(pid) as connection:
            try:
                connection.sendall(status.to_bytes(4))
            except OSError:
                # Gone itself, as a controller that was killed.
                continue


def _become(
    handles: Sequence[int], command: Sequence[str], environ: Mapping[str, str], folder: str, group: int
) -> None:
    """Be the process that was asked for, to its end."""
    os.setpgid(0, group)
    # Started from a background job, a process ignores Ctrl-C and hands that down.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for standard, handle in enumerate(handles):
        os.dup2(handle, standard)
        if handle > 2:
            os.close(handle)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = os.fdopen(number, "w" if number else "r", closefd=False)
        vars(sys).update({name: stream, f"__{name}__": stream})
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*paths, *(path for path in sys.path if path and path not in own)]
    subprocess.Popen = ForkedPopen  # type: ignore[misc]  # whoever starts a process gets a fork
    if command[1] == "-m":
        sys.path.insert(0, folder)
        sys.argv = ["pytest", *command[3:]]
        runpy.run_module("pytest", run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, "")
        sys.argv = ["-c"]
        exec(command[-1], {"__name__": "__main__"})


def _warm_up() -> None:
    """Run a scenario and a conversation, which imports and reads what any run needs."""
    import pytest

    from tests.fakes.installed import read_once

    read_once()
    # pytest warns of plugins that it has not imported itself.
    pytest.main(["--collect-only", "-p", "no:cacheprovider"])

    import xdist.remote
    import xdist.workermanage

    from pytest_spiral.tempaffect.self_check import check_scorer
    from pytest_spiral.tempaffect.suite import load_suite
    from tests.fakes.openai_server import fake_openai
    from tests.fakes.scored import score_once
    from tests.faults.runs import cast

    assert xdist.remote
    assert xdist.workermanage
    # A fork scores what most runs are answered with, and checks the scorer, without any work.
    score_once(pytest.MonkeyPatch())
    check_scorer(load_suite())
    with fake_openai(cast()) as server, mock.patch.dict(os.environ):
        for role in ("EVALUATED_MODEL", "USER_AGENT", "JUDGE"):
            os.environ[f"{role}_BASE_URL"] = server.base_url
        arguments = ("--model=m", "--user-model=u", "--judge-model=j", "--num-turns=1", "-k", "raw-ps-01 or ac-08")
        status = pytest.main(["-p", "tests.fakes.quick_start", "-p", "no:cacheprovider", *arguments])
    # A part of the suites is an incomplete run.
    assert status == 11, status
    shutil.rmtree("reports")
