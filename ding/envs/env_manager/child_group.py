"""The processes of a manager's envs: requests go out, answers come in, and whatever goes wrong is an answer, too."""

from __future__ import annotations

import logging
import os
import pickle
import selectors
import time
from dataclasses import replace
from multiprocessing.context import BaseContext
from typing import Any

from ding.envs.env_manager.child_failure import EnvDiedError, EnvProcessError, Failure, describe_exit
from ding.envs.env_manager.child_plan import ChildPlan, words_of_numpy
from ding.envs.env_manager.child_process import Answer, ChildProcess, Limit, Request, end_all, wait_for_end
from ding.envs.env_manager.wire import encode

_logger = logging.getLogger("ding")
# Seconds for all envs to close and their processes to end, and then for each means of ending one that is still there.
CLOSE_S = 5.0
_END_S = 1.0
# A signal that comes just before a wait begins does not end it; so none is longer than this.
_TICK_S = 0.5
# A connection closes a moment before its process ends.
_EXIT_S = 1.0


class ChildGroup:
    """Starts, asks and ends the processes of envs.

    Answers of an env come in the order of its requests, each of which is answered once: by the env, or by an error when
    the process ends, or exceeds the limit, which counts from when the env can begin with it. A process that exceeds a
    limit is killed. Only `poll` waits for answers; what starts or ends processes takes seconds at the most.

    Args:
        plans: what the processes are started with, by env id.
        context: how they are started.
    """

    def __init__(self, plans: dict[int, ChildPlan], context: BaseContext) -> None:
        self._plans = plans
        self._context = context
        self._owner_pid = os.getpid()
        self._words = words_of_numpy()
        self._starts = dict.fromkeys(plans, 0)
        self._seq = 0  # of the last request; that of `make`, which is not sent, is 0
        self._children: dict[int, ChildProcess] = {}
        self._deaths: dict[int, str] = {}
        self._deadlines: dict[int, float] = {}  # of the request that each env works on
        self._answers: list[Answer] = []  # that poll() has not returned yet
        self._unflushed: set[int] = set()  # envs that a request could not be sent to as a whole
        self._selector = selectors.DefaultSelector()

    def start(self, env_id: int, limit: Limit) -> None:
        """Start a process for env `env_id`, which has none; the env is made without a further request."""
        words = (*self._words, env_id, self._starts[env_id])
        self._starts[env_id] += 1
        plan = replace(self._plans[env_id], random_words=words)
        inherited = [child.channel for child in self._children.values()]
        child = self._children[env_id] = ChildProcess(plan, self._context, inherited)
        self._deaths.pop(env_id, None)
        self._selector.register(child.channel.source, selectors.EVENT_READ, child)
        if child.sentinel is not None:
            self._selector.register(child.sentinel, selectors.EVENT_READ, child)
        child.requests.append(Request(0, "make", limit, None))
        self._start_clock(child)

    def restart(self, env_id: int, limit: Limit) -> None:
        """Start a process for env `env_id` in place of the one it has, whose env may close itself before."""
        child = self._children.get(env_id)
        if child is not None:
            self.send(env_id, "close")
            wait_for_end([child], _END_S)
            self._bury(child)
        self.start(env_id, limit)

    def is_alive(self, env_id: int) -> bool:
        """Whether the env has a process, as far as is known."""
        return env_id in self._children

    def pids(self) -> dict[int, int]:
        """The process ids, by env id."""
        return {env_id: child.pid for env_id, child in self._children.items()}

    def send(
        self,
        env_id: int,
        method: str,
        *args: Any,
        limit: Limit | None = None,
        follow_limit: Limit | None = None,
    ) -> int:
        """Ask an env; the answer, with the number that is returned, comes from `poll`, also if there is no process.

        Raises:
            Exception: an argument cannot be pickled; nothing was sent.
        """
        self._seq = seq = self._seq + 2  # the number between is for a reset that follows a step
        child = self._children.get(env_id)
        if child is None:
            self._answers.append(self._death(env_id, seq, method))
            return seq
        data = encode(seq, (method, *args))
        child.requests.append(Request(seq, method, limit, follow_limit))
        if limit is not None and len(child.requests) == 1:
            self._start_clock(child)
        try:
            if not child.channel.write(data) and env_id not in self._unflushed:
                self._selector.register(child.channel.sink, selectors.EVENT_WRITE, child)
                self._unflushed.add(env_id)
        except OSError:
            self._bury(child)
        return seq

    def forget(self, env_id: int) -> None:
        """Drop the requests of an env: what it still answers is ignored."""
        self._children[env_id].requests.clear()
        self._deadlines.pop(env_id, None)

    def hurry(self, env_id: int, limit: Limit) -> None:
        """Set a limit, from now on, for what an env works on, if that has none."""
        child = self._children.get(env_id)
        if child is not None and child.requests and env_id not in self._deadlines:
            child.requests[0] = child.requests[0]._replace(limit=limit)
            self._start_clock(child)

    def kill(self, env_id: int) -> None:
        """End the process of an env at once, if it has one."""
        child = self._children.get(env_id)
        if child is not None:
            child.kill()
            wait_for_end([child], _EXIT_S)
            self._give_up(child, "its process was killed after a request that failed or took too long")

    def poll(self, timeout_s: float | None) -> list[Answer]:
        """The answers that have come; wait for the first up to `timeout_s` seconds.

        There may be none, so whoever needs one asks again; None leaves to this method how long it waits.
        """
        if self._answers:
            timeout_s = 0
        else:
            timeout_s = _TICK_S if timeout_s is None else timeout_s
            if self._deadlines:
                timeout_s = min(timeout_s, max(0.0, min(self._deadlines.values()) - time.monotonic()))
        for key, mask in self._selector.select(timeout_s):
            child: ChildProcess = key.data
            if self._children.get(child.env_id) is not child:
                continue  # it was given up by the event before
            if mask & selectors.EVENT_WRITE:
                self._flush(child)
            elif key.fd == child.sentinel:
                self._bury(child)
            else:
                self._read(child)
        if self._deadlines:
            self._expire()
        answers, self._answers = self._answers, []
        return answers

    def close(self) -> list[Exception]:
        """Close the envs and end all processes, within a few seconds; return the errors of envs that failed to close.

        In a process that has inherited this object it does nothing.
        """
        if os.getpid() != self._owner_pid:
            return []
        errors = []
        for env_id in list(self._children):
            self.forget(env_id)
            self.send(env_id, "close")
        deadline = time.monotonic() + CLOSE_S
        while any(child.requests for child in self._children.values()):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            for answer in self.poll(left):
                if isinstance(answer.error, EnvDiedError):
                    _logger.warning("%s", answer.error)
                elif answer.error is not None:
                    errors.append(answer.error)
        for child in end_all(self._children.values(), deadline, _END_S):
            _logger.error("the process %s of env %s does not end", child.pid, child.env_id)
        for child in list(self._children.values()):
            self._remove(child)
        self._selector.close()
        return errors

    def close_forgotten(self) -> None:
        """`close` for when nobody is there to be told about errors."""
        for error in self.close():
            _logger.error("an env that was never closed failed to close: %s", error)

    def _start_clock(self, child: ChildProcess) -> None:
        """The env begins with the first of its requests."""
        limit = child.requests[0].limit if child.requests else None
        if limit is not None:
            self._deadlines[child.env_id] = time.monotonic() + limit.seconds
        elif self._deadlines:
            self._deadlines.pop(child.env_id, None)

    def _flush(self, child: ChildProcess) -> None:
        try:
            if child.channel.flush():
                self._selector.unregister(child.channel.sink)
                self._unflushed.discard(child.env_id)
        except OSError:
            self._bury(child)

    def _read(self, child: ChildProcess) -> None:
        try:
            messages = child.channel.read()
        except EOFError:
            self._bury(child)
            return
        for seq, body in messages or ():
            self._take_in(child, seq, body)

    def _take_in(self, child: ChildProcess, seq: int, body: memoryview | bytes) -> None:
        requests = child.requests
        if not requests or seq != requests[0].seq:
            return  # it answers a request that was forgotten
        _, method, _, follow_limit = requests.popleft()
        try:
            is_good, what, more = pickle.loads(body)
        except Exception as e:
            text = f"the answer of env {child.env_id} to {method} cannot be read: {e!r}"
            error = EnvProcessError(text, child.env_id, method)
            error.__cause__ = e
            is_good, what, more = False, error, False
        if more:
            requests.appendleft(Request(seq + 1, "reset", follow_limit, None))
        if requests or self._deadlines:
            self._start_clock(child)
        if is_good:
            answer = Answer(child.env_id, seq, method, what, more=more)
        elif isinstance(what, Failure):
            answer = Answer(child.env_id, seq, method, error=what.to_exception(child.env_id), failed=what.method)
        else:
            answer = Answer(child.env_id, seq, method, error=what, failed=method)
        self._answers.append(answer)

    def _expire(self) -> None:
        now = time.monotonic()
        for env_id in [env_id for env_id, deadline in self._deadlines.items() if deadline <= now]:
            seq, method, limit, _ = self._children[env_id].requests.popleft()
            assert limit is not None
            text = f"env {env_id}: {method} did not end within {limit.words}; its process was killed"
            self._answers.append(Answer(env_id, seq, method, error=TimeoutError(text), failed=method))
            self.kill(env_id)

    def _bury(self, child: ChildProcess) -> None:
        """The process has ended, or is about to: take in its last answers, and give it up."""
        try:
            while (messages := child.channel.read()) is not None:
                for seq, body in messages:
                    self._take_in(child, seq, body)
        except EOFError:
            pass
        if wait_for_end([child], _EXIT_S):
            self._give_up(child, describe_exit(child.exitcode()))
        else:
            child.kill()
            wait_for_end([child], _EXIT_S)
            self._give_up(child, describe_exit(None))

    def _give_up(self, child: ChildProcess, reason: str) -> None:
        """Answer what the env was asked with `reason`, and forget its process, which has ended."""
        self._deaths[child.env_id] = reason
        self._answers += [self._death(child.env_id, request.seq, request.method) for request in child.requests]
        self._remove(child)

    def _death(self, env_id: int, seq: int, method: str) -> Answer:
        text = f"env {env_id} died in {method}: {self._deaths.get(env_id, 'it has no process')}"
        return Answer(env_id, seq, method, error=EnvDiedError(text, env_id, method), failed=method)

    def _remove(self, child: ChildProcess) -> None:
        self._selector.unregister(child.channel.source)
        if child.env_id in self._unflushed:
            self._selector.unregister(child.channel.sink)
            self._unflushed.discard(child.env_id)
        if child.sentinel is not None:
            self._selector.unregister(child.sentinel)
        child.release()
        del self._children[child.env_id]
        self._deadlines.pop(child.env_id, None)
