"""The text log and the TensorBoard log of one worker."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping
from typing import Any

from ding.utils.log_helper import FileLogger, build_logger
from ding.utils.metric_sinks import MetricWriter, add_by_axis
from ding.utils.pytorch_ddp_dist_helper import get_rank
from ding.utils.showing import only_shows


class WorkerLog:
    """The text log `./<exp_name>/log/<instance_name>/<instance_name>_logger.txt` and the TensorBoard log of a worker.

    A `tb_logger` that is passed in is shared: `close` flushes it, but does not close it. Without one, a writer in
    `<instance_name>_tb_logger` next to the text log is created, and closed by `close`. With `is_monitor` false,
    there is no TensorBoard log and, unless this is rank 0, no text file; handlers that users add still get the records.

    Attributes:
        text: The text logger, with the Python name `<instance_name>_logger`; None if `need_text` is false.
        tb: The TensorBoard writer, or None.
        path: Folder of the text log.
    """

    def __init__(
        self,
        exp_name: str,
        instance_name: str,
        tb_logger: Any = None,
        *,
        is_monitor: bool = True,
        need_text: bool = True,
    ) -> None:
        self.instance_name = instance_name
        self.path = os.path.join(".", exp_name, "log", instance_name)
        self._owns_tb = is_monitor and tb_logger is None
        self._told: set[str] = set()
        self.text: Any = None
        self.tb: Any = None
        if need_text and not is_monitor and get_rank() != 0:
            self.text = FileLogger(f"{instance_name}_logger", None)
        elif need_text or self._owns_tb:
            self.text, self.tb = build_logger(self.path, instance_name, need_tb=self._owns_tb, need_text=need_text)
        if is_monitor and tb_logger is not None:
            self.tb = tb_logger

    def scalars(
        self,
        values: Mapping[str, float],
        train_iter: int | None = None,
        envstep: int | None = None,
        iter_only: Collection[str] = (),
    ) -> None:
        """Write each value as `<instance>_iter/<key>` at `train_iter` and `<instance>_step/<key>` at `envstep`.

        An axis whose position is None is skipped. The names in `iter_only` are skipped on the axis of env steps. The
        sinks of a `MetricWriter` get `values` once, with both positions.
        """
        with self.only_shows():
            if isinstance(self.tb, MetricWriter):
                self.tb.add_scalars_of(self.instance_name, values, train_iter, envstep, iter_only)
            elif self.tb is not None:
                add_by_axis(self.tb.add_scalar, self.instance_name, values, train_iter, envstep, iter_only)

    def only_shows(self, what: str = "writing the log") -> contextlib.AbstractContextManager[None]:
        """Catch exceptions of a block that only writes to `tb`, which may be any writer; see `showing.only_shows`."""
        return only_shows(f"{what} of {self.instance_name}", self._told)

    def close(self) -> None:
        """Flush the TensorBoard writer, and close it unless it is shared. Further calls do nothing."""
        if self.tb is None:
            return
        with self.only_shows():
            self.tb.flush()
            if self._owns_tb:
                self.tb.close()
